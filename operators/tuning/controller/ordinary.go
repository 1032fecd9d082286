// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	v2 "workload.openshift.io/operators/api/performance/v2"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/tuning"
)

// wholeCluster takes the place of a NodePool's name in an ordinary cluster: all of its nodes are one pool.
const wholeCluster = ""

// performanceProfileKind is another operator's, which may have left its definition.
var performanceProfileKind = schema.FromAPIVersionAndKind(v2.APIVersion, v2.Kind)

// ordinaryReconciler reads the Tuneds that users of an ordinary cluster write there, and keeps the Tuned default.
type ordinaryReconciler struct {
	cluster  client.Client
	live     client.Reader
	settings Settings
	pools    *pools
	recorder events.EventRecorder
	// state is the management state of the last look.
	state string
	// told are the PerformanceProfiles that Events were written about.
	told map[types.UID]bool
}

// +kubebuilder:rbac:groups=tuned.openshift.io,namespace=openshift-cluster-node-tuning-operator,resources=tuneds,roleName=tuning-ordinary,verbs=list;watch;create
// +kubebuilder:rbac:groups=tuned.openshift.io,namespace=openshift-cluster-node-tuning-operator,resources=tuneds,resourceNames=default,roleName=tuning-ordinary,verbs=update
// +kubebuilder:rbac:groups=tuned.openshift.io,namespace=openshift-cluster-node-tuning-operator,resources=tuneds/status,roleName=tuning-ordinary,verbs=patch
// +kubebuilder:rbac:groups=tuned.openshift.io,namespace=openshift-cluster-node-tuning-operator,resources=profiles,roleName=tuning-ordinary,verbs=list;watch;create;update;delete
// +kubebuilder:rbac:groups=apps,namespace=openshift-cluster-node-tuning-operator,resources=daemonsets,roleName=tuning-ordinary,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,namespace=openshift-cluster-node-tuning-operator,resources=deployments,resourceNames=cluster-node-tuning-operator,roleName=tuning-ordinary,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,roleName=tuning-ordinary,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,roleName=tuning-ordinary,verbs=list
// +kubebuilder:rbac:groups=performance.openshift.io,resources=performanceprofiles,roleName=tuning-ordinary,verbs=list

func addOrdinaryReconciler(home ctrl.Manager, settings Settings, pools *pools) error {
	r := &ordinaryReconciler{
		cluster: home.GetClient(), live: home.GetAPIReader(), settings: settings, pools: pools,
		recorder: companion.Recorder(home, Name), told: map[types.UID]bool{},
	}
	arguments := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*tunedv1.Profile), e.ObjectNew.(*tunedv1.Profile)
		return before.Status.Bootcmdline != after.Status.Bootcmdline || before.Annotations[tuning.TunedAnnotation] != after.Annotations[tuning.TunedAnnotation]
	}}
	return ctrl.NewControllerManagedBy(home).Named("tuneds").
		Watches(&tunedv1.Tuned{}, handler.EnqueueRequestsFromMapFunc(all)).
		Watches(&tunedv1.Profile{}, handler.EnqueueRequestsFromMapFunc(all), builder.WithPredicates(arguments)).
		WatchesRawSource(once()).
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		Complete(r)
}

// Reconcile looks at all Tuneds.
func (r *ordinaryReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list tunedv1.TunedList
	if err := r.live.List(ctx, &list, client.InNamespace(tunedv1.Namespace)); err != nil {
		return reconcile.Result{}, err
	}
	var standing *tunedv1.Tuned
	own := slices.DeleteFunc(list.Items, func(tuned tunedv1.Tuned) bool {
		if tuned.Name != tunedv1.DefaultName {
			return false
		}
		standing = tuned.DeepCopy()
		return true
	})
	if err := r.keepDefault(ctx, standing); err != nil {
		return reconcile.Result{}, conflicts(err)
	}
	valid, broken := map[string][]tunedv1.Tuned{}, map[string]error{}
	faults := tuning.Faults(own)
	if len(faults) == 0 {
		valid[wholeCluster] = own
	} else {
		broken[wholeCluster] = errors.New(tuning.Told(faults))
	}
	r.pools.set(valid, nil, broken, nil)
	if state := tuning.StateOf(standing); state != r.state {
		r.state = state
		r.pools.tell(wholeCluster)
	}
	refused, err := r.performanceProfiles(ctx)
	return reconcile.Result{RequeueAfter: r.settings.Resync.Duration}, conflicts(errors.Join(err, r.report(ctx, own, faults, refused)))
}

// keepDefault makes the Tuned default what it is to be. Its users choose the management state and nothing else.
func (r *ordinaryReconciler) keepDefault(ctx context.Context, standing *tunedv1.Tuned) error {
	want := tuning.Default()
	if standing == nil {
		want.Labels = map[string]string{companion.OwnerLabel: Name}
		return r.cluster.Create(ctx, want)
	}
	want.Spec.ManagementState = standing.Spec.ManagementState
	if tuning.StateOf(standing) == tunedv1.Unmanaged || standing.Labels[companion.OwnerLabel] == Name && equality.Semantic.DeepEqual(want.Spec, standing.Spec) {
		return nil
	}
	next := standing.DeepCopy()
	next.Spec = want.Spec
	metav1.SetMetaDataLabel(&next.ObjectMeta, companion.OwnerLabel, Name)
	return r.cluster.Update(ctx, next)
}

// cachedState is the management state of a cluster. Where the management cluster decides, it is always Managed.
func cachedState(ctx context.Context, c client.Reader) (string, error) {
	standing, err := cachedDefault(ctx, c)
	return tuning.StateOf(standing), err
}

// cachedDefault is the Tuned default of a cluster, or nil if there is none.
func cachedDefault(ctx context.Context, c client.Reader) (*tunedv1.Tuned, error) {
	standing := &tunedv1.Tuned{}
	if has, err := found(c.Get(ctx, client.ObjectKey{Namespace: tunedv1.Namespace, Name: tunedv1.DefaultName}, standing)); !has {
		return nil, err
	}
	return standing, nil
}

// performanceProfiles names those of the cluster, which nobody here uses.
func (r *ordinaryReconciler) performanceProfiles(ctx context.Context) (refused []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(performanceProfileKind)
	if err := r.live.List(ctx, list); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, nil
		}
		return nil, err
	}
	now := map[types.UID]bool{}
	for i := range list.Items {
		object := &list.Items[i]
		object.SetGroupVersionKind(performanceProfileKind)
		text := fmt.Sprintf("PerformanceProfile %s is not used: nothing here can boot nodes of an ordinary cluster with it. Write what kubectl partition render makes of its CPUs to the nodes, and the rest as a Tuned; then delete it", object.Name)
		refused = append(refused, text)
		if now[object.UID] = true; !r.told[object.UID] {
			r.recorder.Eventf(object, nil, corev1.EventTypeWarning, ReasonNotSupported, "Read", "%s", text)
		}
	}
	r.told = now
	return refused, nil
}

// Conditions and reasons of Tuneds of an ordinary cluster.
const (
	// ConditionKernelArguments is True on a Tuned for whose nodes TuneD has computed kernel arguments.
	ConditionKernelArguments = "KernelArgumentsNotApplied"
	ReasonOrdinaryCluster    = "OrdinaryCluster"
	ReasonNotSupported       = "NotSupported"
)

// report writes the conditions of all Tuneds.
func (r *ordinaryReconciler) report(ctx context.Context, own []tunedv1.Tuned, faults map[string][]string, refused []string) error {
	var profiles tunedv1.ProfileList
	if err := r.cluster.List(ctx, &profiles, client.InNamespace(tunedv1.Namespace)); err != nil {
		return err
	}
	arguments := argumentsOf(profiles.Items)
	ignored := tuning.IgnoredLabels(own)
	return reportConditions(ctx, r.cluster, func(tuned *tunedv1.Tuned) []metav1.Condition {
		valid := metav1.Condition{Type: tunedv1.ConditionValid, Status: metav1.ConditionTrue, Reason: ReasonValid, Message: "Profiles are calculated from it."}
		kernel := metav1.Condition{Type: ConditionKernelArguments, Reason: ReasonOrdinaryCluster}
		if text := arguments[tuned.Name]; text != "" {
			kernel.Status, kernel.Message = metav1.ConditionTrue, bound(text)
		}
		conditions := []metav1.Condition{valid, kernel}
		switch texts := faults[tuned.Name]; {
		case tuned.Name == tunedv1.DefaultName:
			degraded := metav1.Condition{Type: tunedv1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: ReasonValid, Message: "All Tuneds are valid."}
			switch {
			case len(faults) > 0:
				degraded.Status, degraded.Reason = metav1.ConditionTrue, ReasonInvalid
				degraded.Message = bound("No node gets another Profile meanwhile. " + tuning.Told(faults))
			case len(refused) > 0:
				degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, ReasonNotSupported, bound(strings.Join(refused, "\n"))
			}
			conditions = append(conditions, degraded)
		case len(texts) > 0:
			conditions[0].Status, conditions[0].Reason = metav1.ConditionFalse, ReasonInvalid
			conditions[0].Message = bound("What was valid last still counts, for all nodes. " + strings.Join(texts, "; "))
		case slices.Contains(ignored, tuned.Name):
			conditions[0].Reason = ReasonIgnoredLabels
			conditions[0].Message = "machineConfigLabels of spec.recommend are not used: match says which nodes."
		}
		return conditions
	})
}

const (
	// argumentsTold is how many different lines of kernel arguments a condition has, and argumentsLength how much of one: nodes
	// write them.
	argumentsTold   = 3
	argumentsLength = 512
)

// argumentsOf says by the names of Tuneds which kernel arguments TuneD has computed on nodes.
func argumentsOf(profiles []tunedv1.Profile) map[string]string {
	nodes := map[string]map[string][]string{}
	for _, profile := range profiles {
		tuned, line := profile.Annotations[tuning.TunedAnnotation], profile.Status.Bootcmdline
		if line == "" || tuned == "" {
			continue
		}
		if nodes[tuned] == nil {
			nodes[tuned] = map[string][]string{}
		}
		nodes[tuned][line] = append(nodes[tuned][line], profile.Name)
	}
	texts := map[string]string{}
	for tuned, lines := range nodes {
		text := "On an ordinary cluster nobody writes kernel arguments: add them to the nodes' boot loaders."
		for i, line := range slices.Sorted(maps.Keys(lines)) {
			if i == argumentsTold {
				text += fmt.Sprintf(" And %d other lines.", len(lines)-argumentsTold)
				break
			}
			names := lines[line]
			slices.Sort(names)
			text += fmt.Sprintf(" Node %s", names[0])
			if len(names) > 1 {
				text += fmt.Sprintf(" and %d more", len(names)-1)
			}
			text += fmt.Sprintf(": %.*q.", argumentsLength, line)
		}
		texts[tuned] = text
	}
	return texts
}
