// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/simulate"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
)

// Read asks a cluster for a namespace and for what constrains the cpu of its pods, and puts
// what files say of it in place of that. What the user may not read is not known in the
// result, and is added to unknown.
func Read(ctx context.Context, client kubernetes.Interface, name string, files simulate.Namespace, unknown *[]status.Unknown) (simulate.Namespace, error) {
	n := files
	if n.Annotations == nil {
		namespace, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err := status.Note(unknown, "get namespaces, of the name "+name, "whether the namespace allows the type", err); err != nil {
			return n, err
		}
		if err == nil {
			n.Annotations = namespace.Annotations
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
		}
	}
	const what = "whether it constrains the cpu of its pods, or gives them defaults"
	ranges, err := client.CoreV1().LimitRanges(name).List(ctx, metav1.ListOptions{})
	if err := status.Note(unknown, "list limitranges, in the namespace "+name, what, err); err != nil {
		return n, err
	}
	if err == nil {
		n.LimitRanges = besides(n.LimitRanges, ranges.Items)
	}
	quotas, err := client.CoreV1().ResourceQuotas(name).List(ctx, metav1.ListOptions{})
	if err := status.Note(unknown, "list resourcequotas, in the namespace "+name, what, err); err != nil {
		return n, err
	}
	if err == nil {
		n.Quotas = besides(n.Quotas, quotas.Items)
	}
	return n, nil
}

// besides adds those objects of the cluster to the objects of files that these do not replace.
func besides[P interface {
	*T
	metav1.Object
}, T any](files []P, cluster []T) []P {
	all := slices.Clone(files)
	for i := range cluster {
		object := P(&cluster[i])
		if !slices.ContainsFunc(files, func(of P) bool { return of.GetName() == object.GetName() }) {
			all = append(all, object)
		}
	}
	return all
}
