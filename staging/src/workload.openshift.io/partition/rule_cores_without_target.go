package partition

// ReasonCoresWithoutTarget: kubectl debug --copy-to drops annotations and keeps resources.
// Such a pod has no right to cores, runs as the ordinary pod that it asks to be, and is no
// pod that asked in vain: its outcome is [Ordinary] (design, section 3).
const ReasonCoresWithoutTarget Reason = "cores_without_target"

var coresWithoutTargetRule = Rule{
	Reason:    ReasonCoresWithoutTarget,
	Condition: "cores without a target annotation become an ordinary `cpu` request",
	Text:      "cores of a workload type were turned back into a cpu request, because the pod asks for no workload type",
	Whole:     true,
	Soft:      Warning,
	Hard:      Warning,
}
