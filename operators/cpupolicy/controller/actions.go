// SPDX-License-Identifier: Apache-2.0

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
		Recorder:    companion.Recorder(mgr, Name),
	}))
}
