// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/node/result"
)

// Options are those of an audit. The zero value audits this host.
type Options struct {
	Host
	// Runtime is asked in place of the host's; it may be nil.
	Runtime Runtime
	// Configz, if set, returns what the kubelet's endpoint /configz answers: the configuration with
	// which it runs. Otherwise its files count.
	Configz func(context.Context) ([]byte, error)
	// Allowed, if set, returns the annotations of a namespace, which say whether its pods may be partitioned.
	// Nil, without an error, are those of a namespace that is gone.
	Allowed func(ctx context.Context, namespace string) (annotations map[string]string, err error)
	// Settle is the time between two walks. Zero means one second.
	Settle time.Duration
}

// Pool is a pool of the node.
type Pool struct {
	Type string `json:"type"`
	// CPUs is empty for a type that is on and not confined.
	CPUs string `json:"cpus"`
}

// Container is what was seen of a container, of a sandbox, or of a pod as a whole, which includes
// what has ended in it.
type Container struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Name is empty for a sandbox and for a pod as a whole.
	Name string `json:"name,omitempty"`
	// Kind is container, sandbox, pod, or other: something else in the pod's cgroup.
	Kind string `json:"kind"`
	// Type is the workload type; "-" for an ordinary pod.
	Type string `json:"type"`
	// Expected is the CPU list on which it must run.
	Expected string `json:"expected,omitempty"`
	// GivenByDRA is the CPU list that a DRA driver gave the container, by the container's environment. It is empty for most.
	GivenByDRA string `json:"givenByDRA,omitempty"`
	Usage      `json:",inline"`
}

var kinds = map[kind]string{wholePod: "pod", sandbox: "sandbox", ofContainer: "container", helper: "other"}

// Result is what an audit has found.
type Result struct {
	metav1.TypeMeta `json:",inline"`
	Time            metav1.Time `json:"time"`
	// CPUs are those of the host that are online.
	CPUs  string `json:"cpus"`
	Pools []Pool `json:"pools"`
	// HostCPUs are in no pool, and the CPU manager gives them to no pod. Empty if there are none.
	HostCPUs string `json:"hostCPUs,omitempty"`
	// CgroupVersion is 1 or 2, CgroupDriver systemd or cgroupfs.
	CgroupVersion int    `json:"cgroupVersion"`
	CgroupDriver  string `json:"cgroupDriver"`
	Runtime       string `json:"runtime"`
	// KubeletConfiguration says where the kubelet's configuration was read; empty if there is none.
	KubeletConfiguration string `json:"kubeletConfiguration,omitempty"`
	// CPUManagerPolicy is that of the checkpoint; empty if there is none.
	CPUManagerPolicy string `json:"cpuManagerPolicy,omitempty"`
	// Findings are what is wrong, and Notes what else was seen. A node without findings is clean.
	Findings   []Finding   `json:"findings"`
	Notes      []Finding   `json:"notes"`
	Containers []Container `json:"containers"`
}

// Clean reports whether nothing is wrong.
func (r *Result) Clean() bool { return len(r.Findings) == 0 }

// Audit looks at the node. If something is wrong it looks again after a while, and reports what
// is wrong both times: pods start and end while it looks, and on cgroup v1 a process joins one
// hierarchy after another.
func Audit(ctx context.Context, options Options) (*Result, error) {
	result, _, err := audit(ctx, options)
	return result, err
}

func audit(ctx context.Context, options Options) (*Result, *node, error) {
	look, end, err := options.looker()
	if err != nil {
		return nil, nil, err
	}
	defer end()
	n, findings, err := confirmed(ctx, look, options.settle())
	if err != nil {
		return nil, nil, err
	}
	return n.result(findings), n, nil
}

func (o Options) settle() time.Duration {
	if o.Settle == 0 {
		return time.Second
	}
	return o.Settle
}

// looker returns a function that walks the node once, and one to call at the end.
func (o Options) looker() (look func(context.Context) (*node, error), end func() error, err error) {
	runtime, end := o.Runtime, func() error { return nil }
	if runtime == nil {
		if runtime, end, err = o.Dial(); err != nil {
			return nil, nil, err
		}
	}
	return func(ctx context.Context) (*node, error) {
		var configz []byte
		if o.Configz != nil {
			if configz, err = o.Configz(ctx); err != nil {
				return nil, err
			}
		}
		n, err := o.walk(ctx, runtime, configz)
		if err == nil {
			n.readRights(ctx, o.Allowed)
		}
		return n, err
	}, end, nil
}

// sleep waits, or returns an error if the context ends before.
func sleep(ctx context.Context, time_ time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time_):
		return nil
	}
}

// both returns the findings of the second walk that the first one had, too.
func both(first, second []Finding) (findings []Finding) {
	before := map[string]bool{}
	for _, f := range first {
		before[f.key()] = true
	}
	for _, f := range second {
		if before[f.key()] {
			findings = append(findings, f)
		}
	}
	return findings
}

func (n *node) result(findings []Finding) *Result {
	r := &Result{
		TypeMeta: result.TypeMeta("Audit"), Time: metav1.Now(), CPUs: n.online.String(), CgroupVersion: n.cgroups.version(), CgroupDriver: n.kubelet.cgroupDriver(),
		Runtime:              n.runtime.GetRuntimeName() + " " + n.runtime.GetRuntimeVersion(),
		KubeletConfiguration: n.kubelet.Source, CPUManagerPolicy: n.checkpoint.Policy,
		Pools: []Pool{}, HostCPUs: n.hostAlone().String(), Findings: slices.Concat([]Finding{}, findings), Notes: slices.Concat([]Finding{}, n.remarks()), Containers: []Container{},
	}
	if n.bySystemd() {
		r.CgroupDriver = "systemd"
	}
	for _, workloadType := range n.pools.Types() {
		r.Pools = append(r.Pools, Pool{workloadType, n.pools[workloadType].String()})
	}
	for _, g := range n.groups {
		c := Container{Namespace: g.pod.namespace, Pod: g.pod.name, Name: g.container.name, Kind: kinds[g.kind], Type: g.pod.typeOrDash(), GivenByDRA: g.container.given.String(), Usage: g.usage}
		if _, confined := n.confined(g.pod); confined || g.kind == ofContainer {
			may, _ := n.may(g.pod, g.container.name)
			c.Expected = may.String()
		}
		r.Containers = append(r.Containers, c)
	}
	// The pod as a whole comes first, then what is in it.
	order := []string{"pod", "sandbox", "container", "other"}
	slices.SortStableFunc(r.Containers, func(a, b Container) int {
		if c := strings.Compare(a.Namespace+"/"+a.Pod, b.Namespace+"/"+b.Pod); c != 0 {
			return c
		}
		if c := slices.Index(order, a.Kind) - slices.Index(order, b.Kind); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return r
}
