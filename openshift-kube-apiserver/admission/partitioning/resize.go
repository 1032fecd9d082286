package partitioning

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/partition"
)

// resize refuses to give CPU to a partitioned pod in place (design, section 4.3).
// LimitRanger, which runs before, sets its defaults on a resize as well; a value
// that is such a default is nobody's wish, and is taken out again.
func (p *plugin) resize(pod, stored *core.Pod, namespace string) error {
	target, errs := partition.ParseTarget(stored.Annotations)
	if len(errs) > 0 || target.Type == "" {
		return nil
	}
	var refused field.ErrorList
	refuse := func(path *field.Path, asked resource.Quantity) {
		refused = append(refused, field.Invalid(path.Key("cpu"), asked.String(),
			fmt.Sprintf("the CPU of a partitioned pod does not change after its creation; it is counted as %s. Memory may change", partition.CoresResource(target.Type))))
	}
	if resources := pod.Spec.Resources; resources != nil {
		// It had none, or it would not be partitioned, and would weigh as much as this says.
		if asked, has := resources.Requests[core.ResourceCPU]; has {
			refuse(field.NewPath("spec", "resources", "requests"), asked)
		}
		if asked, has := resources.Limits[core.ResourceCPU]; has {
			refuse(field.NewPath("spec", "resources", "limits"), asked)
		}
	}
	for _, containers := range []struct {
		path *field.Path
		list []core.Container
	}{{field.NewPath("spec", "initContainers"), pod.Spec.InitContainers}, {field.NewPath("spec", "containers"), pod.Spec.Containers}} {
		for i := range containers.list {
			resources := &containers.list[i].Resources
			for _, of := range []struct {
				what string
				list core.ResourceList
			}{{"requests", resources.Requests}, {"limits", resources.Limits}} {
				asked, has := of.list[core.ResourceCPU]
				switch {
				case !has:
				case p.isDefault(namespace, of.what, asked):
					delete(of.list, core.ResourceCPU)
				default:
					refuse(containers.path.Index(i).Child("resources", of.what), asked)
				}
			}
		}
	}
	if len(refused) > 0 {
		return apierrors.NewInvalid(core.Kind("Pod"), name(pod), refused)
	}
	return nil
}

// isDefault reports whether a LimitRange of the namespace gives containers the
// amount of cpu that do not ask for any.
func (p *plugin) isDefault(namespace, what string, amount resource.Quantity) bool {
	ranges, err := p.limitRanges.LimitRanges(namespace).List(labels.Everything())
	if err != nil {
		return false // A lister reads a cache, and has no errors.
	}
	for _, limitRange := range ranges {
		for _, item := range limitRange.Spec.Limits {
			defaults := item.DefaultRequest
			if what == "limits" {
				defaults = item.Default
			}
			if value, has := defaults[v1.ResourceCPU]; has && item.Type == v1.LimitTypeContainer && value.Cmp(amount) == 0 {
				return true
			}
		}
	}
	return false
}
