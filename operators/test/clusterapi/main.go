// SPDX-License-Identifier: Apache-2.0

// Clusterapi runs Cluster API's own controllers of MachineDeployments and MachineSets against a
// kube-apiserver of a test. The test plays the rest: a Machine is a Node object, which nobody runs, and
// the cluster manages itself.
package main

import (
	"context"
	"flag"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

func main() {
	klog.InitFlags(nil) // controller-runtime has the flag --kubeconfig
	flag.Parse()
	log.SetLogger(klog.Background())
	if err := run(signals.SetupSignalHandler()); err != nil {
		klog.ErrorS(err, "Ended")
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := manager.New(config, manager.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	deployments := &machinedeployment.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}
	if err := deployments.SetupWithManager(ctx, mgr, controller.Options{}); err != nil {
		return err
	}
	sets := &machineset.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: itself{mgr}}
	if err := sets.SetupWithManager(ctx, mgr, controller.Options{}); err != nil {
		return err
	}
	m := &machines{mgr.GetClient(), mgr.GetAPIReader()}
	if err := ctrl.NewControllerManagedBy(mgr).Named("test-machines").For(&clusterv1.Machine{}).Complete(m); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// itself is a cluster that manages itself.
type itself struct{ mgr manager.Manager }

func (i itself) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return i.mgr.GetClient(), nil
}
func (i itself) GetReader(context.Context, client.ObjectKey) (client.Reader, error) {
	return i.mgr.GetClient(), nil
}
func (i itself) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return i.mgr.GetClient(), nil
}
func (i itself) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return i.mgr.GetConfig(), nil
}
func (i itself) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error { return nil }
func (i itself) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{LastProbeTime: time.Now(), LastProbeSuccessTime: time.Now()}
}
func (i itself) GetClusterSource(string, func(context.Context, client.Object) []ctrl.Request, ...clustercache.GetClusterSourceOption) source.Source {
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
}

// machines plays the controller of Machines and their infrastructure.
type machines struct {
	client client.Client
	live   client.Reader
}

const finalizer = "test.example.com/machine"

// Reconcile implements reconcile.Reconciler.
func (m *machines) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	machine := &clusterv1.Machine{}
	if err := m.live.Get(ctx, request.NamespacedName, machine); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := machine.DeepCopy()
	if machine.DeletionTimestamp != nil {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.Name}}
		if err := m.client.Delete(ctx, node); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
		machine.Finalizers = nil // its own, and that which Cluster API's controller of Machines would remove
		return reconcile.Result{}, client.IgnoreNotFound(m.client.Patch(ctx, machine, client.MergeFrom(before)))
	}
	if !slices.Contains(machine.Finalizers, finalizer) {
		machine.Finalizers = append(machine.Finalizers, finalizer)
		return reconcile.Result{}, m.client.Patch(ctx, machine, client.MergeFrom(before))
	}
	if machine.Status.Phase == "Running" {
		return reconcile.Result{}, nil
	}
	taints := []corev1.Taint{{Key: "node-role.kubernetes.io/ci-tests-worker", Value: "ci-tests-worker", Effect: corev1.TaintEffectNoSchedule}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.Name, Labels: map[string]string{corev1.LabelHostname: machine.Name, "ci-workload": machine.Labels["ci-workload"]}}}
	if err := m.client.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, err
	}
	if err := m.live.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return reconcile.Result{}, err
	}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	if err := m.client.Status().Update(ctx, node); err != nil {
		return reconcile.Result{}, err
	}
	// kube-apiserver writes that it is not ready, and nobody else takes that back here.
	ready := node.DeepCopy()
	ready.Spec.Taints = taints
	if err := m.client.Patch(ctx, ready, client.MergeFrom(node)); err != nil {
		return reconcile.Result{}, err
	}
	machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: machine.Name}
	machine.Status.Phase = "Running"
	now := metav1.Now()
	machine.Status.Conditions = nil
	for _, kind := range []string{clusterv1.MachineReadyCondition, clusterv1.MachineAvailableCondition, clusterv1.MachineUpToDateCondition, clusterv1.MachineNodeReadyCondition, clusterv1.MachineNodeHealthyCondition} {
		machine.Status.Conditions = append(machine.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: now})
	}
	return reconcile.Result{}, m.client.Status().Patch(ctx, machine, client.MergeFrom(before))
}
