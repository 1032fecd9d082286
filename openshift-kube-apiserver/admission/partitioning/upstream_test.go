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
