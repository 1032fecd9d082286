// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"workload.openshift.io/operators/api/nodegroup"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

var (
	tunedKind     = tunedv1.GroupVersion.WithKind("Tuned")
	profileKind   = tunedv1.GroupVersion.WithKind("Profile")
	daemonSetKind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
)

// operandName is that of the DaemonSet.
const operandName = "tuned"

// specHash is an annotation of Profiles in the cache, and nowhere else: the hash of the spec that the cluster has. The specs of a
// thousand nodes are too much to keep.
const specHash = "cache.tuning.workload.openshift.io/spec"

func hashOf(spec tunedv1.ProfileSpec) string {
	data, err := json.Marshal(spec)
	if err != nil {
		panic(err) // it has only texts, numbers and booleans
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func stripProfile(profile *tunedv1.Profile) {
	annotations := map[string]string{specHash: hashOf(profile.Spec)}
	for name, value := range profile.Annotations {
		if name != specHash {
			annotations[name] = value
		}
	}
	profile.Annotations = annotations
	profile.Spec.Profile = nil
	for i := range profile.Status.Conditions {
		profile.Status.Conditions[i].Message = ""
	}
}

// stripTuned keeps what the status is compared with, and the management state.
func stripTuned(tuned *tunedv1.Tuned) {
	tuned.Spec = tunedv1.TunedSpec{ManagementState: tuned.Spec.ManagementState}
}

// stripConfigMap leaves what says that there is something new: its content is read from the API.
func stripConfigMap(configMap *corev1.ConfigMap) {
	configMap.Data, configMap.BinaryData = nil, nil
}

func stripDaemonSet(set *appsv1.DaemonSet) {
	set.Spec = appsv1.DaemonSetSpec{}
}

// stripPod keeps where a pod of the operand runs, and which image.
func stripPod(pod *corev1.Pod) {
	image := ""
	if len(pod.Spec.Containers) > 0 {
		image = pod.Spec.Containers[0].Image
	}
	pod.Annotations = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, Containers: []corev1.Container{{Image: image}}}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase}
}

// stripNode keeps what a node's Profile depends on, and the claim, which the manager shows.
func stripNode(node *corev1.Node) {
	annotations := map[string]string{}
	for _, name := range []string{nodegroup.PausedAnnotation, nodegroup.ClaimAnnotation} {
		if value, ok := node.Annotations[name]; ok {
			annotations[name] = value
		}
	}
	node.Annotations = annotations
	node.Spec = corev1.NodeSpec{ProviderID: node.Spec.ProviderID}
	node.Status = corev1.NodeStatus{}
}
