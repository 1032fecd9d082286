module workload.openshift.io/kubernetes/build/releases/v1.34.12

go 1.25.0

require (
	k8s.io/kubernetes v1.34.12
	k8s.io/api v0.34.12
	k8s.io/apiextensions-apiserver v0.34.12
	k8s.io/apimachinery v0.34.12
	k8s.io/apiserver v0.34.12
	k8s.io/cli-runtime v0.34.12
	k8s.io/client-go v0.34.12
	k8s.io/cloud-provider v0.34.12
	k8s.io/cluster-bootstrap v0.34.12
	k8s.io/code-generator v0.34.12
	k8s.io/component-base v0.34.12
	k8s.io/component-helpers v0.34.12
	k8s.io/controller-manager v0.34.12
	k8s.io/cri-api v0.34.12
	k8s.io/cri-client v0.34.12
	k8s.io/csi-translation-lib v0.34.12
	k8s.io/dynamic-resource-allocation v0.34.12
	k8s.io/endpointslice v0.34.12
	k8s.io/externaljwt v0.34.12
	k8s.io/kms v0.34.12
	k8s.io/kube-aggregator v0.34.12
	k8s.io/kube-controller-manager v0.34.12
	k8s.io/kube-proxy v0.34.12
	k8s.io/kube-scheduler v0.34.12
	k8s.io/kubectl v0.34.12
	k8s.io/kubelet v0.34.12
	k8s.io/metrics v0.34.12
	k8s.io/mount-utils v0.34.12
	k8s.io/pod-security-admission v0.34.12
	k8s.io/sample-apiserver v0.34.12
)
