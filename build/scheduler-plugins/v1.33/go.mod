// The same module as made for Kubernetes v1.33.
module workload.openshift.io/kubernetes/build/scheduler-plugins/v1.33

go 1.24.0

require sigs.k8s.io/scheduler-plugins v0.33.5
