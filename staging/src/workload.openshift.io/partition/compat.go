package partition

import v1 "k8s.io/api/core/v1"

// TODO: remove this file once nothing outside the core uses these names. They carry no
// deprecation notice, because lint would refuse their callers for it.

// TypeOf is the old name of [PartitionedType].
func TypeOf(pod *v1.Pod) (workloadType string, ok bool) { return PartitionedType(pod) }

// ReasonNamespaceNotAllowed is the old name of [ReasonNamespaceNotAnnotated].
const ReasonNamespaceNotAllowed = ReasonNamespaceNotAnnotated

// Allows is the old name of [ListsType].
func Allows(value, workloadType string) bool { return ListsType(value, workloadType) }
