// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"cmp"
	"encoding/json"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
)

// Patch returns what turns one pod into the other, as a JSON patch of the object that was posted: that
// may have fields that these types do not know, and keeps them.
func Patch(before, after *corev1.Pod) ([]jsonpatch.Operation, error) {
	// Containers that come first would move all others.
	added := len(after.Spec.InitContainers) - len(before.Spec.InitContainers)
	rest := after.DeepCopy()
	rest.Spec.InitContainers = rest.Spec.InitContainers[added:]
	texts := [2][]byte{}
	for i, pod := range []*corev1.Pod{before, rest} {
		var err error
		if texts[i], err = json.Marshal(pod); err != nil {
			return nil, err
		}
	}
	patches, err := jsonpatch.CreatePatch(texts[0], texts[1])
	if err != nil {
		return nil, err
	}
	// The shorter first: of a list, the tenth element comes before the eleventh.
	slices.SortStableFunc(patches, func(a, b jsonpatch.Operation) int {
		return cmp.Or(cmp.Compare(len(a.Path), len(b.Path)), cmp.Compare(a.Path, b.Path))
	})
	if added > 0 && len(before.Spec.InitContainers) == 0 {
		return append(patches, jsonpatch.NewOperation("add", "/spec/initContainers", after.Spec.InitContainers)), nil
	}
	for i := range added {
		patches = append(patches, jsonpatch.NewOperation("add", "/spec/initContainers/0", after.Spec.InitContainers[added-1-i]))
	}
	return patches, nil
}
