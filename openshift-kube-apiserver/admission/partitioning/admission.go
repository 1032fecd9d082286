// Package partitioning is the admission plugin workload.openshift.io/Partitioning:
// a shim between kube-apiserver and the core. It knows requests, namespaces and
// nodes; what a partitioned pod looks like, only the core knows.
package partitioning

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/metrics"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// PluginName is the plugin's name in kube-apiserver's flags and configuration.
const PluginName = "workload.openshift.io/Partitioning"

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
	drained    context.Context
	client     kubernetes.Interface
	nodes      nodeidentifier.NodeIdentifier
	namespaces corev1listers.NamespaceLister
	demands    demandSource
	activation *activation.Tracker
}

var (
	_ admission.MutationInterface                  = &plugin{}
	_ admission.ValidationInterface                = &plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &plugin{}
	_ initializer.WantsExternalKubeClientSet       = &plugin{}
	_ initializer.WantsDrainedNotification         = &plugin{}
	_ initializer.WantsDynamicClient               = &plugin{}
)

func newPlugin(settings config.Configuration) *plugin {
	return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), drained: context.Background(),
		nodes: nodeidentifier.NewDefaultNodeIdentifier(), demands: newDemandSource(), activation: activation.New(settings.Activation)}
}

// SetDynamicClient gives the client that reads OpenShift's Infrastructure object, if
// the configuration names that.
func (p *plugin) SetDynamicClient(client dynamic.Interface) {
	p.activation.SetDynamicClient(p.drained, client)
}

// SetExternalKubeClientSet gives the client that writes the latch and Events.
func (p *plugin) SetExternalKubeClientSet(client kubernetes.Interface) {
	p.client = client
	p.demands.setClient(client)
	p.activation.SetClient(client)
}

// SetDrainedNotification starts the writer of the latch, which ends when the
// server has drained. It is the first that kube-apiserver calls; the writer does
// nothing before nodes and the latch have been seen, when all else is set.
func (p *plugin) SetDrainedNotification(stop <-chan struct{}) {
	ctx := wait.ContextForChannel(stop)
	p.drained = ctx
	go p.activation.Run(ctx)
}

// SetExternalKubeInformerFactory follows namespaces and nodes.
func (p *plugin) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	namespaces, nodes := factory.Core().V1().Namespaces(), factory.Core().V1().Nodes()
	p.namespaces = namespaces.Lister()
	p.demands.setInformers(factory)
	if err := p.activation.SetInformers(nodes.Informer(), namespaces.Informer()); err != nil {
		// The informers have not started yet, so they take every handler.
		panic(fmt.Sprintf("%s: %v", PluginName, err))
	}
	metrics.Collect(p.activation)
}

// ValidateInitialization is called once, before the first request.
func (p *plugin) ValidateInitialization() error {
	if p.client == nil || p.namespaces == nil {
		return fmt.Errorf("%s needs a client and informers", PluginName)
	}
	return p.demands.validate()
}

// Admit implements the rules of sections 4.1 and 4.3 of the design.
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

func (p *plugin) create(ctx context.Context, a admission.Attributes, pod *core.Pod) error {
	again := a.GetReinvocationContext().IsReinvoke()
	if again {
		restoreTarget(a, pod)
	}
	if !concerns(pod) {
		return nil
	}
	if p.isMirror(a, pod) {
		return p.mirror(a, pod, again)
	}
	var ignored []string
	if again {
		ignored = p.cpuBesideCores(a.GetNamespace(), pod)
	} else {
		// In a later run the warning may be our own.
		delete(pod.Annotations, partition.WarningAnnotation)
	}
	decision, err := p.decide(ctx, a, pod, again)
	if err != nil {
		return err
	}
	// What is not refused may change with a later run, and is told and counted by Validate.
	switch {
	case decision.Outcome == partition.Refused:
		p.count(a, decision)
		if len(decision.Errors) > 0 {
			return apierrors.NewInvalid(core.Kind("Pod"), name(pod), decision.Errors)
		}
		return admission.NewForbidden(a, errors.New(decision.Message()))
	case decision.Outcome == partition.Skipped && !again && pod.Annotations[partition.WarningAnnotation] == "":
		// It has no room for the annotation, so nothing is left for Validate to tell.
		p.count(a, decision)
		warn(ctx, a, decision.Message())
	case decision.Outcome == partition.Partitioned && len(ignored) > 0:
		warn(ctx, a, fmt.Sprintf("the cpu that was set in %s after the pod had been partitioned is ignored; its cores stand", strings.Join(ignored, ", ")))
	}
	rememberTarget(a, decision)
	return nil
}

// rememberTarget keeps the target that this run took from the pod, for the next one, which
// decides again: a webhook may have added a container.
func rememberTarget(a admission.Attributes, decision partition.Decision) {
	var taken partition.Target
	if decision.Outcome == partition.Skipped {
		taken = decision.Target
	}
	a.GetReinvocationContext().SetValue(PluginName, taken)
}

// restoreTarget gives a pod back what an earlier run took. A target that a webhook has
// removed or written since is the webhook's word.
func restoreTarget(a admission.Attributes, pod *core.Pod) {
	taken, _ := a.GetReinvocationContext().Value(PluginName).(partition.Target)
	if taken.Type == "" {
		return
	}
	for key := range pod.Annotations {
		if strings.HasPrefix(key, partition.TargetPrefix) {
			return
		}
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[partition.TargetAnnotation(taken.Type)] = taken.AnnotationValue()
}

// cpuBesideCores names the containers of a partitioned pod to which a webhook has given cpu:
// what LimitRanger has put there is nobody's wish.
func (p *plugin) cpuBesideCores(namespace string, pod *core.Pod) (containers []string) {
	for _, of := range internalpod.View(pod).Containers {
		if !partition.CarriesCores(*of.Requests) {
			continue
		}
		request, limit := (*of.Requests)[core.ResourceCPU], (*of.Limits)[core.ResourceCPU]
		if (!request.IsZero() && !p.demands.isDefault(namespace, "requests", request)) || (!limit.IsZero() && !p.demands.isDefault(namespace, "limits", limit)) {
			containers = append(containers, fmt.Sprintf("container %q", of.Name))
		}
	}
	return containers
}

// decide runs the core on a pod of the request's namespace, which is looked at only if
// the pod asks for a workload type. After an error the pod is of no use.
func (p *plugin) decide(ctx context.Context, a admission.Attributes, pod *core.Pod, again bool) (partition.Decision, error) {
	policy := partition.Policy{Gate: partition.AnyType}
	if target, errs := partition.ParseTarget(pod.Annotations); target.Type != "" && len(errs) == 0 {
		reason, err := p.ask(ctx, a, target.Type)
		if err != nil {
			return partition.Decision{}, err
		}
		policy.Gate = func(string) partition.Reason { return reason }
		if reason == partition.NoReason {
			if err := p.demands.complete(a, pod, again, &policy); err != nil {
				return partition.Decision{}, err
			}
		}
	}
	return partition.Mutate(internalpod.View(pod), policy), nil
}

// Validate refuses a pod that something has changed after the last run of Admit, so
// that it is no longer what the core makes of it: a webhook that runs once more
// after that, for example. The kubelet would not know such a pod as partitioned. Such a
// webhook may also make a whole partitioned pod of one that may not be one, so the gate
// is asked again. What was decided of the others is told and counted here. Authors of
// workloads are warned here, too.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*core.Pod)
	if !ok {
		p.warnOfTemplate(ctx, a)
		return nil
	}
	if stored, ok := a.GetOldObject().(*core.Pod); ok && a.GetOperation() == admission.Update {
		// A webhook may run once more after the last Admit.
		if !partition.KeepsAnnotations(pod.Annotations, stored.Annotations) {
			return admission.NewForbidden(a, errors.New("the pod's workload partitioning annotations were changed after its creation, probably by a mutating webhook"))
		}
		return nil
	}
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return nil
	}
	if !concerns(pod) || p.isMirror(a, pod) {
		return nil
	}
	target, _ := partition.ParseTarget(pod.Annotations)
	if !partition.Settled(internalpod.View(pod)) {
		decision := partition.Decision{Outcome: partition.Refused, Target: target, Reason: partition.ReasonChangedLater}
		p.count(a, decision)
		return admission.NewForbidden(a, errors.New(decision.Message()))
	}
	if target.Type == "" {
		if message, told := pod.Annotations[partition.WarningAnnotation]; told {
			warn(ctx, a, message)
			if decision, ok := partition.ParseMessage(message); ok {
				p.count(a, decision)
			}
		}
		return nil
	}
	decision := partition.Decision{Outcome: partition.Partitioned, Target: target}
	var err error
	if decision.Reason, err = p.ask(ctx, a, target.Type); err != nil {
		return err
	}
	if decision.Reason != partition.NoReason {
		decision.Outcome = partition.Refused
		err = admission.NewForbidden(a, errors.New(decision.Message()+"; the pod was partitioned after that had been decided, probably by a mutating webhook"))
	}
	p.count(a, decision)
	return err
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

// ask tells whether pods of the request's namespace may be partitioned as the type. A no of
// the cache counts only after a live read: a pod that is not partitioned now will never be.
func (p *plugin) ask(ctx context.Context, a admission.Attributes, workloadType string) (partition.Reason, error) {
	if err := p.awaitCaches(ctx, workloadType); err != nil {
		return "", err
	}
	namespace, err := p.namespaces.Get(a.GetNamespace())
	if apierrors.IsNotFound(err) || (err == nil && !partition.ListsType(namespace.Annotations[partition.AllowedAnnotation], workloadType)) {
		// The cache may be behind a namespace that was created or annotated a moment ago.
		namespace, err = p.client.CoreV1().Namespaces().Get(ctx, a.GetNamespace(), metav1.GetOptions{})
	}
	if err != nil {
		return "", err
	}
	return p.gate(namespace.Annotations, workloadType), nil
}

// synced reports whether everything has been seen that decides on pods of the type.
func (p *plugin) synced(workloadType string) bool {
	return p.activation.Synced() && p.activation.Awaits(workloadType) == "" && p.demands.synced()
}

// awaitCaches waits for them as long as the request may, and then asks the client to come
// again: the plugin never guesses.
func (p *plugin) awaitCaches(ctx context.Context, workloadType string) error {
	if p.synced(workloadType) {
		return nil
	}
	const poll = 50 * time.Millisecond
	// The server's own timeout would answer 504 in our place at the deadline.
	limit := longestWait
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)-time.Second)
	}
	waiting, cancel := context.WithTimeout(ctx, max(limit, poll))
	defer cancel()
	if err := wait.PollUntilContextCancel(waiting, poll, false, func(context.Context) (bool, error) { return p.synced(workloadType), nil }); err == nil {
		return nil
	}
	if object := p.activation.Awaits(workloadType); object != "" {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("%s has not seen the %s yet, which decides on the workload type %q; try again", PluginName, object, workloadType))
	}
	return apierrors.NewServiceUnavailable(PluginName + " has not seen the cluster's namespaces and nodes yet; try again")
}

// longestWait is for how long a request waits for the caches.
const longestWait = 10 * time.Second

func (p *plugin) gate(namespace map[string]string, workloadType string) partition.Reason {
	if reason := partition.NamespaceReason(namespace, workloadType); reason != partition.NoReason {
		return reason
	}
	if !p.activation.Active(workloadType) {
		return partition.ReasonTypeInactive
	}
	return partition.NoReason
}

// update keeps the stored pod's annotations, whichever subresource the request
// goes to: nobody enters or leaves a partition after creation.
func (p *plugin) update(ctx context.Context, a admission.Attributes, pod *core.Pod) error {
	stored, ok := a.GetOldObject().(*core.Pod)
	if !ok {
		return nil
	}
	if partition.KeepAnnotations(&pod.Annotations, stored.Annotations) {
		warning.AddWarning(ctx, "", "the workload partitioning annotations of a pod do not change after its creation; they are kept")
	}
	resize := a.GetSubresource() == "resize"
	if (resize || a.GetSubresource() == "") && concerns(stored) {
		if resize {
			p.dropDefaults(pod, a.GetNamespace())
		}
		partition.KeepCPU(internalpod.View(pod), internalpod.View(stored))
	}
	if resize {
		return refuseCPU(pod, stored)
	}
	return nil
}
