package partition

// ReasonQoSChange: the class decides about eviction and about the pod's cgroup, so the
// mutation never changes it (design, section 5). A pod whose only request is cpu would
// become BestEffort.
const ReasonQoSChange Reason = "qos_change"

var qosChangeRule = Rule{
	Reason:    ReasonQoSChange,
	Condition: "without `cpu` the QoS class would change: give a container a memory request",
	Text:      "without its CPU request the pod would become BestEffort; give a container a memory request to have it partitioned",
	Soft:      Warning,
	Hard:      Forbidden,
}

func (p Pod[L, N]) changesQoS(found findings) bool { return found.class != p.qos(nil) }
