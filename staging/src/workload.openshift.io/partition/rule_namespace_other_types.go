package partition

// ReasonNamespaceOtherTypes: whoever annotated the namespace has decided, and not for this
// type. So the soft effect is refused as well (design, section 4.1). [NamespaceReason]
// tells it.
const ReasonNamespaceOtherTypes Reason = "namespace_other_types"

var namespaceOtherTypesRule = Rule{
	Reason:     ReasonNamespaceOtherTypes,
	Condition:  "the namespace allows other types only",
	StaticPods: "never",
	Text:       "the namespace's annotation " + AllowedAnnotation + " does not list it",
	Soft:       Forbidden,
	Hard:       Forbidden,
}
