// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/partition"
)

// kubeadmPods are what the containers of kubeadm's static pods request (upstream,
// cmd/kubeadm/app/phases/controlplane/manifests.go and cmd/kubeadm/app/phases/etcd/local.go).
var kubeadmPods = map[string]v1.ResourceList{
	"kube-apiserver":          {v1.ResourceCPU: resource.MustParse("250m")},
	"kube-controller-manager": {v1.ResourceCPU: resource.MustParse("200m")},
	"kube-scheduler":          {v1.ResourceCPU: resource.MustParse("100m")},
	"etcd":                    {v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("100Mi")},
}

// kubeadmPatch is a patch in docs/user/installers.md: the sentence that names its file, and the
// file.
var kubeadmPatch = regexp.MustCompile("(?m)^`([a-z-]+)\\+strategic\\.yaml`.*:\n\n```yaml\n((?s:.*?))```")

// TestPatchesForKubeadm applies the documentation's patches to static pods that request what
// kubeadm's do. With them, each is partitioned; with the annotation alone, those are not that
// request no memory.
func TestPatchesForKubeadm(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs", "user", "installers.md"))
	if err != nil {
		t.Fatal(err)
	}
	patches := map[string][]byte{}
	for _, found := range kubeadmPatch.FindAllSubmatch(data, -1) {
		patches[string(found[1])] = found[2]
	}
	if len(patches) != len(kubeadmPods) {
		t.Errorf("the documentation has %d patches, want one for each of %d static pods", len(patches), len(kubeadmPods))
	}
	for name, requests := range kubeadmPods {
		t.Run(name, func(t *testing.T) {
			asked := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: name, Image: "registry.k8s.io/" + name, Resources: v1.ResourceRequirements{Requests: requests}}}}}
			asked.Annotations = map[string]string{partition.TargetAnnotation("management"): ""}
			original, err := json.Marshal(asked)
			if err != nil {
				t.Fatal(err)
			}
			want := partition.ReasonQoSChange
			if _, has := requests[v1.ResourceMemory]; has {
				want = partition.NoReason
			}
			if d := partition.Mutate(partition.V1(asked), partition.Policy{Gate: partition.AnyType, NeverRefuse: true}); d.Reason != want {
				t.Errorf("with the annotation alone it is %q because of %q, want %q", d.Outcome, d.Reason, want)
			}
			patch, err := yaml.YAMLToJSON(patches[name])
			if err != nil {
				t.Fatal(err)
			}
			result, err := strategicpatch.StrategicMergePatch(original, patch, v1.Pod{})
			if err != nil {
				t.Fatal(err)
			}
			var patched v1.Pod
			if err := json.Unmarshal(result, &patched); err != nil {
				t.Fatal(err)
			}
			if d := partition.Mutate(partition.V1(&patched), partition.Policy{Gate: partition.AnyType, NeverRefuse: true}); d.Outcome != partition.Partitioned || len(patched.Spec.Containers) != 1 {
				t.Errorf("with its patch it is %q because of %q, with containers %v", d.Outcome, d.Reason, patched.Spec.Containers)
			}
		})
	}
}
