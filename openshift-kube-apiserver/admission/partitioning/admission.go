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

// Package partitioning is the admission plugin workload.openshift.io/Partitioning: a shim
// between kube-apiserver and the core.
//
// It knows requests: their phases and runs, and the internal types that they carry. Which
// types are active, package activation knows; what a namespace permits, package gate; what
// it requires, package constraint; which stored pods were never judged, package stored; and
// what a partitioned pod looks like, only the core.
package partitioning

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/activation"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/constraint"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/gate"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/metrics"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/stored"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// PluginName is the plugin's name in kube-apiserver's flags and configuration.
const PluginName = config.PluginName

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(reader io.Reader) (admission.Interface, error) {
		settings, err := config.Read(reader)
		if err != nil {
			return nil, err
		}
		return newPlugin(settings), nil
	})
}

// plugin partitions pods when they are created, and keeps them as they are later
// (design, section 4).
type plugin struct {
	*admission.Handler
	// drained ends when the server has drained.
	drained     context.Context
	nodes       nodeidentifier.NodeIdentifier
	nodesByName corev1listers.NodeLister
	activation  *activation.Tracker
	constraints *constraint.Source
	gate        *gate.Gate
}

var (
	_ admission.MutationInterface                  = &plugin{}
	_ admission.ValidationInterface                = &plugin{}
	_ initializer.WantsDrainedNotification         = &plugin{}
	_ initializer.WantsExternalKubeClientSet       = &plugin{}
	_ initializer.WantsDynamicClient               = &plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &plugin{}
)

func newPlugin(settings config.Configuration) *plugin {
	p := &plugin{
		Handler:     admission.NewHandler(admission.Create, admission.Update),
		drained:     context.Background(),
		nodes:       nodeidentifier.NewDefaultNodeIdentifier(),
		activation:  activation.New(settings.Activation),
		constraints: constraint.New(),
	}
	p.gate = gate.New(PluginName, p.activation, p.constraints.Synced)
	return p
}

// SetDrainedNotification starts the writer of the latch, which ends when the
// server has drained. It is the first that kube-apiserver calls; the writer does
// nothing before nodes and the latch have been seen, when all else is set.
func (p *plugin) SetDrainedNotification(stop <-chan struct{}) {
	p.drained = wait.ContextForChannel(stop)
	go p.activation.Run(p.drained)
}

// SetExternalKubeClientSet gives the client that writes the latch and Events, and reads what
// the caches may be behind of.
func (p *plugin) SetExternalKubeClientSet(client kubernetes.Interface) {
	p.activation.SetClient(client)
	p.constraints.SetClient(client)
	p.gate.SetClient(client)
}

// SetDynamicClient gives the client that reads OpenShift's Infrastructure object, if
// the configuration names that.
func (p *plugin) SetDynamicClient(client dynamic.Interface) {
	p.activation.SetDynamicClient(p.drained, client)
}

// SetExternalKubeInformerFactory follows namespaces, nodes, pods, LimitRanges and ResourceQuotas.
func (p *plugin) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	namespaces, nodes := factory.Core().V1().Namespaces(), factory.Core().V1().Nodes()
	p.gate.SetNamespaces(namespaces.Lister())
	p.nodesByName = nodes.Lister()
	p.constraints.SetInformers(factory)
	if err := p.activation.SetInformers(nodes.Informer(), namespaces.Informer()); err != nil {
		// The informers have not started yet, so they take every handler.
		panic(fmt.Sprintf("%s: %v", PluginName, err))
	}
	pods, err := stored.New(factory.Core().V1().Pods(), namespaces)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", PluginName, err))
	}
	p.activation.SetPods(pods.AwaitNotAllowed)
	metrics.Collect(p.activation, pods)
}

// ValidateInitialization is called once, before the first request.
func (p *plugin) ValidateInitialization() error {
	if err := p.gate.Validate(); err != nil {
		return err
	}
	return p.constraints.Validate()
}

// Admit changes pods as sections 4.1 and 4.3 of the design have it.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch object := a.GetObject().(type) {
	case *core.Pod:
		if a.GetOperation() == admission.Update {
			return p.update(ctx, a, object)
		}
		if a.GetSubresource() == "" {
			return p.create(ctx, a, object)
		}
	case *core.Binding: // of a pod's subresource, and of the older resource bindings
		// The annotations of a binding become the pod's (pkg/registry/core/pod/storage).
		partition.KeepAnnotations(&object.Annotations, nil)
	}
	return nil
}

// Validate refuses what was changed after Admit had decided, and reports what was decided. It
// warns the authors of workloads (design, section 4.4).
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if binding, ok := a.GetObject().(*core.Binding); ok {
		return validateBinding(a, binding)
	}
	pod, ok := a.GetObject().(*core.Pod)
	if !ok {
		p.warnOfTemplate(ctx, a)
		return nil
	}
	if stored, ok := a.GetOldObject().(*core.Pod); ok && a.GetOperation() == admission.Update {
		return validateUpdate(a, pod, stored)
	}
	if a.GetOperation() == admission.Create && a.GetSubresource() == "" {
		return p.validateCreate(ctx, a, pod)
	}
	return nil
}

// concerns reports whether the pod has anything that the core would look at. Nearly
// no pod has; this path allocates nothing and takes no lock.
func concerns(pod *core.Pod) bool {
	for key := range pod.Annotations {
		if partition.OwnsAnnotation(key) {
			return true
		}
	}
	return internalpod.CarriesCores(pod)
}

// count counts what was decided of a pod. Nothing comes of a dry run.
func (p *plugin) count(a admission.Attributes, decision partition.Decision) {
	if !a.IsDryRun() {
		metrics.CountPod(p.activation, decision)
	}
}

// warn tells the client and the audit log; the core has annotated the pod.
func warn(ctx context.Context, a admission.Attributes, message string) {
	warning.AddWarning(ctx, "", message)
	// The only error is a second annotation of the same name with another value.
	_ = a.AddAnnotation(partition.WarningAnnotation, message)
}

// name is what an error calls a pod that may not have its name yet.
func name(pod *core.Pod) string {
	if pod.Name == "" {
		return pod.GenerateName
	}
	return pod.Name
}
