/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package ownership reads who wrote which field of an object, from its managed fields.
package ownership

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Of returns the fields of an object that a field manager wrote, whether it applied or updated them.
// An object from a cache that drops its managed fields has none.
func Of(object metav1.Object, owner string) (*fieldpath.Set, error) {
	all := fieldpath.NewSet()
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != owner || entry.FieldsV1 == nil {
			continue
		}
		var set fieldpath.Set
		if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, fmt.Errorf("managed fields of %s, written by %s: %w", object.GetName(), owner, err)
		}
		all = all.Union(&set)
	}
	return all, nil
}
