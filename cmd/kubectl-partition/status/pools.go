// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// poolMetric is the kubelet's gauge of the size of a pool.
const poolMetric = "kubelet_workload_partitioning_pool_cpus"

// readPools asks the kubelets of the nodes that report cores for the sizes of their pools.
func (r *reader) readPools(ctx context.Context) {
	types := map[string][]string{}
	for key, node := range r.nodes {
		if node.reports {
			types[key.node] = append(types[key.node], key.workloadType)
		}
	}
	const atOnce = 50
	nodes := slices.Sorted(maps.Keys(types))
	var mu sync.Mutex
	var failed, lacking []string
	var first error
	workqueue.ParallelizeUntil(ctx, atOnce, len(nodes), func(i int) {
		pools, err := r.pools(ctx, nodes[i])
		mu.Lock()
		defer mu.Unlock()
		for workloadType, cpus := range pools {
			if row := r.nodes[nodeType{nodes[i], workloadType}]; row != nil {
				row.PoolCPUs = &cpus
			}
		}
		switch {
		case err != nil:
			failed, first = append(failed, nodes[i]), err
		case slices.ContainsFunc(types[nodes[i]], func(workloadType string) bool { _, has := pools[workloadType]; return !has }):
			lacking = append(lacking, nodes[i])
		}
	})
	unknown := func(nodes []string, right, why string) {
		slices.Sort(nodes)
		r.unknown = append(r.unknown, Unknown{Right: right, What: fmt.Sprintf("the sizes of the pools on %d node(s), such as %s", len(nodes), nodes[0]), Error: why})
	}
	if first != nil {
		right := ""
		if apierrors.IsForbidden(first) {
			right = "get nodes/proxy"
		}
		unknown(failed, right, first.Error())
	}
	if len(lacking) > 0 {
		unknown(lacking, "", "the node reports a type of which its kubelet has no metric "+poolMetric)
	}
}

// pools asks a kubelet for its metrics.
func (r *reader) pools(ctx context.Context, node string) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := r.client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("metrics").SetHeader("Accept", "text/plain").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of the kubelet of node %s: %w", node, err)
	}
	pools := map[string]int{}
	for _, metric := range families[poolMetric].GetMetric() {
		for _, label := range metric.Label {
			if label.GetName() == typeLabel {
				pools[label.GetValue()] = int(metric.GetGauge().GetValue())
			}
		}
	}
	return pools, nil
}
