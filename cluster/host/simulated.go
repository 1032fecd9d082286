// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
)

// The annotation of the nodes that kwok plays, as its own manifests have it.
const (
	simulatedAnnotation = "kwok.x-k8s.io/node"
	simulatedValue      = "fake"
)

// CreateNodes creates simulated nodes: Nodes without a kubelet, which kwok reports as Ready, and
// the pods on them as Running. Node i, from zero, is the template with "-i" behind its name,
// the labels that a kubelet sets, and its capacity as what is allocatable. An empty capacity
// means kwok's, which is large. CreateNodes returns when all nodes exist, with the errors of
// those that do not; kwok then takes a moment to report them.
func (c *Cluster) CreateNodes(ctx context.Context, count int, template *v1.Node) error {
	errs := make([]error, count)
	const atOnce = 16
	workqueue.ParallelizeUntil(ctx, atOnce, count, func(i int) {
		node := template.DeepCopy()
		node.Name = fmt.Sprintf("%s-%d", template.Name, i)
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, simulatedAnnotation, simulatedValue)
		for key, value := range map[string]string{v1.LabelHostname: node.Name, v1.LabelOSStable: "linux", v1.LabelArchStable: runtime.GOARCH} {
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
		}
		node.Status.Allocatable = node.Status.Capacity
		_, errs[i] = c.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	})
	return errors.Join(append(errs, ctx.Err())...)
}
