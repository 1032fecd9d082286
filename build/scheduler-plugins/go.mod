// The module of the scheduler's plugin NodeResourceTopologyMatch, which carry materialises.
module workload.openshift.io/kubernetes/build/scheduler-plugins

go 1.24.0

require sigs.k8s.io/scheduler-plugins v0.34.7
