package partition

import "k8s.io/apimachinery/pkg/api/resource"

// DropOriginalCPU takes cpu out of the containers of a changed pod where it is exactly
// what [Mutate] took out of the same container of the stored one. A client that applies
// its manifest again sends that, and means no change. Any other cpu stays, for
// validation to refuse.
func DropOriginalCPU[L ~map[N]resource.Quantity, N ~string](changed, stored Pod[L, N]) {
	target, errs := ParseTarget(*stored.Annotations)
	if len(errs) > 0 || target.Type == "" {
		return
	}
	for i := range changed.Containers {
		for j := range stored.Containers {
			if stored.Containers[j].Name == changed.Containers[i].Name {
				changed.Containers[i].dropOriginalCPU(&stored.Containers[j], *stored.Annotations, target.Type)
			}
		}
	}
}

func (c *Container[L, N]) dropOriginalCPU(stored *Container[L, N], annotations map[string]string, workloadType string) {
	was := stored.ordinary(annotations, N(CoresResource(workloadType)))
	for _, list := range []struct {
		changed, stored *L
		was             int64
	}{{c.Requests, stored.Requests, was.request}, {c.Limits, stored.Limits, was.limit}} {
		_, had := (*list.stored)[cpu]
		if _, has := (*list.changed)[cpu]; has && !had && milli(*list.changed, cpu) == list.was {
			remove(list.changed, cpu)
		}
	}
}

// SameRequest reports whether two annotation values of a pod ask for the same, however
// they are written. Other annotations are compared as they are.
func SameRequest(key, a, b string) bool {
	if a == b {
		return true
	}
	first, errs := ParseTarget(map[string]string{key: a})
	if len(errs) > 0 || first.Type == "" {
		return false
	}
	second, errs := ParseTarget(map[string]string{key: b})
	return len(errs) == 0 && first == second
}
