package partition

// ReasonGuaranteed: a Guaranteed pod has a right to CPUs of its own, which a pool that
// others share does not give it (design, section 5).
const ReasonGuaranteed Reason = "guaranteed"

var guaranteedRule = Rule{
	Reason:    ReasonGuaranteed,
	Condition: "the QoS class is Guaranteed",
	Text:      "the pod has the QoS class Guaranteed, whose CPU is its own; give it requests below its limits to have it partitioned",
	Soft:      Warning,
	Hard:      Forbidden,
}

func (f findings) isGuaranteed() bool { return f.class == guaranteed }
