// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/ownership"
)

func newCleanCommand(companions []companion.Companion, controller *string) *cobra.Command {
	var (
		kubeconfig, hosted string
		dryRun             bool
	)
	command := &cobra.Command{
		Use:   "clean --controller=COMPANION",
		Short: "Remove what a companion has left",
		Long: `Remove what a companion has left: the objects that it made, and from all nodes
labels, annotations, taints and a cordon that it wrote. Run it with your own
credentials once the companion is uninstalled. What somebody else wrote stays.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			selected, err := choose(companions, *controller)
			if err != nil {
				return err
			}
			config := &configv1alpha1.ControllerConfiguration{}
			configv1alpha1.SetDefaults(config)
			config.HostedConnection.Kubeconfig = hosted
			if settings := selected.Settings(); settings != nil {
				settings.Default()
			}
			needs := selected.Needs(config)
			for _, in := range []struct {
				flag, kubeconfig string
				access           *companion.Access
			}{
				{"kubeconfig", kubeconfig, &needs.Home},
				{"hosted-kubeconfig", hosted, needs.Hosted},
			} {
				if in.access == nil {
					continue
				}
				if in.access == needs.Hosted && in.kubeconfig == "" {
					return fmt.Errorf("--%s is missing: %s works in a hosted cluster, too", in.flag, selected.Name())
				}
				config, err := clientConfig(componentbaseconfig.ClientConnectionConfiguration{Kubeconfig: in.kubeconfig, QPS: 50, Burst: 100})
				if err != nil {
					return fmt.Errorf("--%s: %w", in.flag, err)
				}
				c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
				if err != nil {
					return err
				}
				if err := deleteOwned(command.Context(), c, selected.Name(), in.access.Owned, dryRun, command.OutOrStdout()); err != nil {
					return err
				}
				if err := clean(command.Context(), c, selected.Name(), in.access.Marks, dryRun, command.OutOrStdout()); err != nil {
					return err
				}
				if in.access == &needs.Home {
					if err := unlockControlPlane(command.Context(), c, selected.Name(), dryRun, command.OutOrStdout()); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig, instead of that of kubectl")
	command.Flags().StringVar(&hosted, "hosted-kubeconfig", "", "kubeconfig of the hosted cluster, for a companion that works there, too")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "write nothing, and say what would be removed")
	return command
}

// deleteOwned deletes the objects that a companion made, the last kind first, and prints a line for each. A kind that is
// not there has none.
func deleteOwned(ctx context.Context, c client.Client, name string, kinds []schema.GroupVersionKind, dryRun bool, out io.Writer) error {
	for _, kind := range slices.Backward(kinds) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := c.List(ctx, list, client.MatchingLabels{companion.OwnerLabel: name}); err != nil {
			if meta.IsNoMatchError(err) {
				continue
			}
			return err
		}
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind)
			done := "would delete"
			if !dryRun {
				done = "deleted"
				if err := client.IgnoreNotFound(c.Delete(ctx, object, client.Preconditions{UID: &object.UID})); err != nil {
					return fmt.Errorf("%s %s: %w", kind.Kind, client.ObjectKeyFromObject(object), err)
				}
			}
			fmt.Fprintf(out, "%s/%s: %s\n", strings.ToLower(kind.Kind), strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/"), done)
		}
	}
	return nil
}

// unlockControlPlane takes the lock of the control plane away from a companion, and deletes the Lease if no other one
// holds it.
func unlockControlPlane(ctx context.Context, c client.Client, name string, dryRun bool, out io.Writer) error {
	var lease coordinationv1.Lease
	if err := c.Get(ctx, nodegroup.ControlPlaneLock, &lease); err != nil {
		return client.IgnoreNotFound(err)
	}
	holders, err := nodegroup.HoldersOf(&lease)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(holders), func(h nodegroup.Holder) bool { return h.OwnedBy(name) })
	done := ""
	switch {
	case len(others) == 0:
		done = "deleted"
		if !dryRun {
			err = c.Delete(ctx, &lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
		}
	case len(others) < len(holders):
		done = "unlocked"
		if !dryRun {
			nodegroup.PutHolders(&lease, others)
			err = c.Update(ctx, &lease)
		}
	default:
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("lease %s: %w", nodegroup.ControlPlaneLock, err)
	}
	if dryRun {
		done = "would be " + done
	}
	fmt.Fprintf(out, "lease/%s: %s\n", nodegroup.ControlPlaneLock, done)
	return nil
}

// clean removes what a companion has left on nodes, and prints a line for each node that had
// something.
func clean(ctx context.Context, c client.Client, name string, marks companion.Marks, dryRun bool, out io.Writer) error {
	var nodes corev1.NodeList
	for {
		if err := c.List(ctx, &nodes, client.Limit(100), client.Continue(nodes.Continue)); err != nil {
			return err
		}
		for i := range nodes.Items {
			node := &nodes.Items[i]
			var removed []string
			err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
				before := node.DeepCopy()
				if removed, err = removeTraces(node, name, marks); err != nil || len(removed) == 0 || dryRun {
					return err
				}
				err = c.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
				if err != nil {
					// For the next try, if there is one.
					if getErr := c.Get(ctx, types.NamespacedName{Name: node.Name}, node); getErr != nil {
						return getErr
					}
				}
				return err
			})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("node %s: %w", node.Name, err)
			}
			if len(removed) > 0 {
				done := "removed"
				if dryRun {
					done = "would remove"
				}
				fmt.Fprintf(out, "node/%s: %s %s\n", node.Name, done, strings.Join(removed, ", "))
			}
		}
		if nodes.Continue == "" {
			return nil
		}
	}
}

// removeTraces removes from a node a companion's marks, its claim, and what it wrote besides. It
// names what it removed.
func removeTraces(node *corev1.Node, name string, marks companion.Marks) (removed []string, err error) {
	owned, err := ownership.Of(node, companion.FieldOwner(name))
	if err != nil {
		return nil, err
	}
	for _, each := range []struct {
		kind   string
		values map[string]string
		marks  []string
	}{
		{"annotation", node.Annotations, marks.Annotations},
		{"label", node.Labels, marks.Labels},
	} {
		for _, key := range slices.Sorted(maps.Keys(each.values)) {
			if slices.Contains(each.marks, key) || owned.Has(fieldpath.MakePathOrDie("metadata", each.kind+"s", key)) ||
				key == nodegroup.ClaimAnnotation && claimedBy(each.values[key], name) {
				delete(each.values, key)
				removed = append(removed, each.kind+" "+key)
			}
		}
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		ours := slices.Contains(marks.Taints, taint.Key)
		if ours {
			removed = append(removed, "taint "+taint.Key)
		}
		return ours
	})
	if node.Spec.Unschedulable && owned.Has(fieldpath.MakePathOrDie("spec", "unschedulable")) {
		node.Spec.Unschedulable = false
		removed = append(removed, "cordon")
	}
	return removed, nil
}

// claimedBy reports whether a claim is a companion's. One that cannot be read is nobody's.
func claimedBy(claim, name string) bool {
	var read struct{ Owner string }
	return json.Unmarshal([]byte(claim), &read) == nil && read.Owner == name
}
