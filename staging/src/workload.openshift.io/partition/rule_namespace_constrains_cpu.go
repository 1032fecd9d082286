package partition

// ReasonNamespaceConstrainsCPU: a LimitRange or ResourceQuota would have the pod refused
// without cpu, so a soft pod would not run at all. [Policy.Constraint] knows these objects,
// and [Decision.Detail] names the one (design, section 4.1).
const ReasonNamespaceConstrainsCPU Reason = "namespace_constrains_cpu"

var namespaceConstrainsCPURule = Rule{
	Reason:     ReasonNamespaceConstrainsCPU,
	Condition:  "a LimitRange or ResourceQuota, which is named, would refuse the pod without `cpu`",
	StaticPods: "never",
	Text:       "the namespace demands cpu of its pods: ",
	Soft:       Warning,
	Hard:       Forbidden,
}

// constraint returns what the object says that would refuse the pod, or nothing.
func (p Policy) constraint() string {
	if p.Constraint == nil {
		return ""
	}
	return p.Constraint()
}
