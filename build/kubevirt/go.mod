// KubeVirt, whose published schemas the companions' tests use. Nothing of it is compiled.
module workload.openshift.io/kubernetes/build/kubevirt

go 1.26.0

require kubevirt.io/kubevirt v1.8.4
