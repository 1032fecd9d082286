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

package partitioning

import (
	"reflect"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// newInitializer is upstream's New, which has more arguments in newer releases. All but
// these and the channel that stops it are left at zero.
func newInitializer(t *testing.T, client kubernetes.Interface, dynamic dynamic.Interface, factory informers.SharedInformerFactory) admission.PluginInitializer {
	create := reflect.ValueOf(initializer.New)
	given := []any{client, dynamic, factory}
	arguments := make([]reflect.Value, create.Type().NumIn())
	for i := range arguments {
		arguments[i] = reflect.Zero(create.Type().In(i))
		if i < len(given) && given[i] != nil {
			arguments[i] = reflect.ValueOf(given[i])
		} else if create.Type().In(i) == reflect.TypeFor[<-chan struct{}]() {
			arguments[i] = reflect.ValueOf(t.Context().Done())
		}
	}
	return create.Call(arguments)[0].Interface().(admission.PluginInitializer)
}
