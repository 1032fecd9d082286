// The companions: operators beside a partitioned cluster. No tree of a release lists this module.
module workload.openshift.io/operators

go 1.26.0

require (
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/client-go v0.37.2
	k8s.io/utils v0.0.0-20260626114624-be93311217bd
	sigs.k8s.io/controller-runtime v0.25.2
	workload.openshift.io/partition v0.0.0
)

replace workload.openshift.io/partition => ../staging/src/workload.openshift.io/partition
