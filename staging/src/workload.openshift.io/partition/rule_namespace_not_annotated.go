package partition

// ReasonNamespaceNotAnnotated: nobody has said whether the namespace's pods may use a pool,
// and without that none may (design, section 4.1). [NamespaceReason] tells it.
const ReasonNamespaceNotAnnotated Reason = "namespace_not_annotated"

var namespaceNotAnnotatedRule = Rule{
	Reason:     ReasonNamespaceNotAnnotated,
	Condition:  "the namespace has no allowed annotation",
	StaticPods: "never, since they are the node administrator's",
	// OpenShift's conformance suite looks for these words.
	Text: "the namespace is not annotated with " + AllowedAnnotation,
	Soft: Warning,
	Hard: Forbidden,
}
