// SPDX-License-Identifier: Apache-2.0

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
