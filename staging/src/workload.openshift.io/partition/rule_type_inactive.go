package partition

// ReasonTypeInactive: where no pool of the type is, the cores that replace cpu are missing
// and the pod would stay Pending. Each caller's [Gate] knows which types are active: the
// cluster's for pods of the API (design, section 4.2), the node's for static pods.
const ReasonTypeInactive Reason = "type_inactive"

var typeInactiveRule = Rule{
	Reason:     ReasonTypeInactive,
	Condition:  "not all nodes report the type's cores",
	StaticPods: "the node's file lacks the type",
	Text:       "no pool of this type is active here",
	Soft:       Warning,
	Hard:       Forbidden,
}
