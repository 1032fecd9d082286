package partition

// ReasonInvalidTarget: nobody can say which type or effect the author meant, so there is
// nothing to fall back to (design, section 4.1). [ParseTarget] decides, and
// [Decision.Errors] say what is wrong.
const ReasonInvalidTarget Reason = "invalid_target"

var invalidTargetRule = Rule{
	Reason:    ReasonInvalidTarget,
	Condition: "two targets, an invalid type, or a value that is no such JSON object",
	Text:      "workload type ignored: ",
	Whole:     true,
	Soft:      Unprocessable,
	Hard:      Unprocessable,
}
