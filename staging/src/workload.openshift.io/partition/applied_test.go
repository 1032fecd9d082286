package partition

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestDropOriginalCPU(t *testing.T) {
	build := func() *v1.Pod {
		p := pod(map[string]string{target: ""}, container("a", "cpu=400m memory=1Mi", "cpu=500m"), container("b", "memory=1Mi", ""))
		p.Spec.InitContainers = []v1.Container{container("init", "cpu=101m", "")}
		return p
	}
	stored := build()
	if d := Mutate(V1(stored), Policy{Gate: open}); d.Outcome != Partitioned {
		t.Fatal(d)
	}
	for name, test := range map[string]struct {
		change func(*v1.Pod)
		// want are the cpu requests and limits that stay.
		want int
	}{
		"the manifest as it was":        {func(*v1.Pod) {}, 0},
		"another request":               {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = list("cpu=401m") }, 1},
		"another limit":                 {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = list("cpu=400m") }, 1},
		"a request that was none":       {func(p *v1.Pod) { p.Spec.Containers[1].Resources.Requests = list("cpu=1m") }, 1},
		"a request that was none, zero": {func(p *v1.Pod) { p.Spec.Containers[1].Resources.Requests = list("cpu=0") }, 0},
		"a container that is new":       {func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, container("x", "cpu=400m", "")) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			changed := build()
			test.change(changed)
			DropOriginalCPU(V1(changed), V1(stored))
			left := 0
			for _, c := range append(changed.Spec.Containers, changed.Spec.InitContainers...) {
				for _, l := range []v1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
					if _, has := l[cpu]; has {
						left++
					}
				}
			}
			if left != test.want {
				t.Errorf("%d lists still have cpu, want %d: %v", left, test.want, changed.Spec)
			}
		})
	}
	t.Run("a stored pod that is ordinary", func(t *testing.T) {
		ordinary := build()
		ordinary.Annotations = nil
		changed := build()
		before := changed.DeepCopy()
		DropOriginalCPU(V1(changed), V1(ordinary))
		expectEqual(t, changed, before)
	})
}

func TestSameRequest(t *testing.T) {
	for _, test := range []struct {
		key, a, b string
		want      bool
	}{
		{target, "", soft, true},
		{target, "{}", `{"effect":"PreferredDuringScheduling"}`, true},
		{target, hard, `{"effect":"RequiredDuringScheduling"}`, true},
		{target, soft, hard, false},
		{target, soft, "x", false},
		{target, "x", "x", true},
		{ResourcesAnnotation("a"), `{"cpushares":2}`, `{"cpushares": 2}`, false},
	} {
		if got := SameRequest(test.key, test.a, test.b); got != test.want {
			t.Errorf("%s: %s and %s: %v, want %v", test.key, test.a, test.b, got, test.want)
		}
	}
}
