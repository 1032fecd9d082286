/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package controller

import (
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/cpupolicy/action"
)

// addActions adds the action endpoint, with the certificate of the webhooks.
func addActions(mgr manager.Manager, namespace string, settings Settings) error {
	server, is := mgr.GetWebhookServer().(*webhook.DefaultServer)
	if !is {
		return errors.New("the webhook server has no options to take the certificate from")
	}
	return mgr.Add(action.New(action.Options{
		Config:      mgr.GetConfig(),
		Namespaces:  []string{namespace, settings.AgentNamespace},
		BindAddress: settings.Actions.BindAddress,
		TLSOpts:     server.Options.TLSOpts,
		Recorder:    mgr.GetEventRecorder(companion.FieldOwner(Name)),
	}))
}
