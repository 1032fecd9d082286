// SPDX-License-Identifier: Apache-2.0

// Machines runs OpenShift's own controllers of MachineSets and Machines against a kube-apiserver of a
// test. Only the infrastructure is the test's: a machine is a Node object, which nobody runs.
package main

import (
	"context"
	"flag"
	"os"

	openshiftfeatures "github.com/openshift/api/features"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	"github.com/openshift/machine-api-operator/pkg/controller/machine"
	"github.com/openshift/machine-api-operator/pkg/controller/machineset"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the kube-apiserver")
	klog.InitFlags(nil)
	flag.Parse()
	log.SetLogger(klog.Background())
	if err := run(signals.SetupSignalHandler(), *kubeconfig); err != nil {
		klog.ErrorS(err, "Ended")
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, machinev1.Install} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := manager.New(config, manager.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	gate := featuregate.NewFeatureGate()
	if err := gate.Add(map[featuregate.Feature]featuregate.FeatureSpec{featuregate.Feature(openshiftfeatures.FeatureGateMachineAPIMigration): {}}); err != nil {
		return err
	}
	if err := machineset.Add(mgr, manager.Options{}, gate); err != nil {
		return err
	}
	if err := machine.AddWithActuator(mgr, &nodes{mgr.GetClient(), mgr.GetAPIReader()}, gate); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// nodes is an infrastructure of which each instance is a Node with the name of its Machine.
type nodes struct {
	client client.Client
	live   client.Reader
}

// Exists implements machine.Actuator.
func (n *nodes) Exists(ctx context.Context, m *machinev1.Machine) (bool, error) {
	err := n.live.Get(ctx, client.ObjectKey{Name: m.Name}, &corev1.Node{})
	return err == nil, client.IgnoreNotFound(err)
}

// Create implements machine.Actuator. The node is Ready at once, and has 4 CPUs.
func (n *nodes) Create(ctx context.Context, m *machinev1.Machine) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: map[string]string{corev1.LabelHostname: m.Name, corev1.LabelOSStable: "linux"}, Annotations: map[string]string{"machine.openshift.io/machine": m.Namespace + "/" + m.Name}},
		Spec:       corev1.NodeSpec{ProviderID: "test:///" + m.Name, Taints: m.Spec.Taints},
	}
	for key, value := range m.Spec.Labels {
		node.Labels[key] = value
	}
	if err := n.client.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	node.Status = corev1.NodeStatus{
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}},
	}
	node.Status.Allocatable = node.Status.Capacity
	if err := n.client.Status().Update(ctx, node); err != nil {
		return err
	}
	// kube-apiserver writes that it is not ready, and nobody else takes that back here.
	before := node.DeepCopy()
	node.Spec.Taints = m.Spec.Taints
	if err := n.client.Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return err
	}
	return n.Update(ctx, m)
}

// Update implements machine.Actuator: it does what a provider and the node link controller do.
func (n *nodes) Update(ctx context.Context, m *machinev1.Machine) error {
	if m.Spec.ProviderID != nil && m.Status.NodeRef != nil {
		return nil
	}
	before, id := m.DeepCopy(), "test:///"+m.Name
	m.Spec.ProviderID = &id
	if err := n.client.Patch(ctx, m, client.MergeFrom(before)); err != nil {
		return err
	}
	before = m.DeepCopy()
	m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: m.Name}}
	m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: m.Name}
	return n.client.Status().Patch(ctx, m, client.MergeFrom(before))
}

// Delete implements machine.Actuator.
func (n *nodes) Delete(ctx context.Context, m *machinev1.Machine) error {
	return client.IgnoreNotFound(n.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}))
}
