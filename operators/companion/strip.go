// SPDX-License-Identifier: Apache-2.0

package companion

import (
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Strip returns the transform of a cache that drops what nobody reads of the objects of a type. A cache may hand it other
// values, too, which stay as they are.
func Strip[T client.Object](strip func(T)) toolscache.TransformFunc {
	return func(in any) (any, error) {
		if object, ok := in.(T); ok {
			strip(object)
		}
		return in, nil
	}
}
