// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
)

// What the first lines of a rules file say.
const (
	APIVersion = "workloadclasses.workload.openshift.io/v1alpha1"
	Kind       = "WorkloadClasses"
)

// MaxFileSize is the largest rules file that is read, in bytes.
const MaxFileSize = 1 << 20

// Config is a rules file: classes, and the ordered rules that give pods a class.
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Classes are those that rules may name. Their order has no meaning.
	Classes []Class `json:"classes"`
	// Rules are asked in their order, and the first that matches a pod decides.
	Rules []Rule `json:"rules"`
}

// Class is what a pod of a class gets. Its nodes have the labels of NodeSelector.
type Class struct {
	// Name is a DNS label: it is the value of labels.
	Name string `json:"name"`
	// NodeSelector is what all nodes of the class have and no others, at least one label. Pods
	// get it, too.
	NodeSelector map[string]string `json:"nodeSelector"`
	// Tolerations are those of the class's taints.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// RuntimeClassName is that of a RuntimeClass with the overhead of the class's pods. Empty
	// writes none.
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
	// Labels are written to pods, beside ClassLabel and NamespaceLabel.
	Labels map[string]string `json:"labels,omitempty"`
	// RequestFloors are the least that each container asks for. A container that limits itself
	// to less asks for its limit.
	RequestFloors corev1.ResourceList `json:"requestFloors,omitempty"`
	// InitContainers are added before those of the pod, unless it has one of that name.
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
}

// Rule gives a class to the pods that it matches.
type Rule struct {
	Name  string `json:"name"`
	Match Match  `json:"match"`
	// Class is the name of one of the classes; empty leaves the pod as it is, and no later rule
	// is asked.
	Class string `json:"class,omitempty"`
}

// Match is what a pod must be. All fields that are set must match, and of a list one entry. One
// without any field matches every pod.
type Match struct {
	// Namespaces and NamespacePrefixes are of the pod's namespace.
	Namespaces        []string `json:"namespaces,omitempty"`
	NamespacePrefixes []string `json:"namespacePrefixes,omitempty"`
	// NamePrefixes and NameParts are of the pod's name, or of its generateName while it has none.
	NamePrefixes []string `json:"namePrefixes,omitempty"`
	NameParts    []string `json:"nameParts,omitempty"`
	// Labels and Annotations select by the pod's own. An expression with the operator Exists
	// asks for a key alone.
	Labels      *metav1.LabelSelector `json:"labels,omitempty"`
	Annotations *metav1.LabelSelector `json:"annotations,omitempty"`
	// RequestsAtLeast is compared with the sum that the pod asks for.
	RequestsAtLeast corev1.ResourceList `json:"requestsAtLeast,omitempty"`
}

// ReadConfig decodes and checks a rules file. Unknown and duplicate fields are errors; each error
// names the field and the value.
func ReadConfig(data []byte) (*Config, error) {
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("the rules file has %d bytes; at most %d are read", len(data), MaxFileSize)
	}
	document, err := configv1alpha1.OnlyDocument(data)
	if err != nil {
		return nil, err
	}
	if document == nil {
		return nil, errors.New("the rules file is empty")
	}
	var header metav1.TypeMeta
	if err := yaml.Unmarshal(document, &header); err != nil {
		return nil, oneLine(err)
	}
	if header.APIVersion != APIVersion || header.Kind != Kind {
		return nil, fmt.Errorf("apiVersion and kind are %q and %q; this program reads %q and %q", header.APIVersion, header.Kind, APIVersion, Kind)
	}
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, oneLine(err)
	}
	config := &Config{}
	// This decoder names the place of a mistake, and is sensitive to case.
	strict, err := kjson.UnmarshalStrict(text, config)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, oneLine(err)
	}
	if errs := config.Validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return config, nil
}

// oneLine joins the lines in which the decoder lists mistakes.
func oneLine(err error) error {
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}

// Class returns the class of a name; nil if there is none.
func (c *Config) Class(name string) *Class {
	if i := slices.IndexFunc(c.Classes, func(class Class) bool { return class.Name == name }); i >= 0 {
		return &c.Classes[i]
	}
	return nil
}

// ClassOfNode returns the class whose labels a node has; nil if there is none.
func (c *Config) ClassOfNode(labels map[string]string) *Class {
	for i := range c.Classes {
		if c.Classes[i].hasNode(labels) {
			return &c.Classes[i]
		}
	}
	return nil
}

func (c *Class) hasNode(labels map[string]string) bool {
	for key, value := range c.NodeSelector {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// Validate returns all mistakes of a rules file. It compiles nothing and reads nothing else.
func (c *Config) Validate() field.ErrorList {
	var errs field.ErrorList
	if len(c.Classes) == 0 {
		errs = append(errs, field.Required(field.NewPath("classes"), "a rules file without classes does nothing"))
	}
	seen := map[string]bool{}
	for i := range c.Classes {
		class, path := &c.Classes[i], field.NewPath("classes").Index(i)
		errs = append(errs, class.validate(path)...)
		if seen[class.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), class.Name))
		}
		seen[class.Name] = true
		for j := range i {
			// A node would be in both.
			if other := &c.Classes[j]; other.hasNode(class.NodeSelector) || class.hasNode(other.NodeSelector) {
				errs = append(errs, field.Invalid(path.Child("nodeSelector"), class.NodeSelector, fmt.Sprintf("nodes of class %s would be nodes of this one, or the other way round", other.Name)))
			}
		}
	}
	names := map[string]bool{}
	for i := range c.Rules {
		rule, path := &c.Rules[i], field.NewPath("rules").Index(i)
		if problems := validation.IsDNS1123Label(rule.Name); problems != nil {
			errs = append(errs, field.Invalid(path.Child("name"), rule.Name, strings.Join(problems, "; ")))
		}
		if names[rule.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), rule.Name))
		}
		names[rule.Name] = true
		if rule.Class != "" && !seen[rule.Class] {
			errs = append(errs, field.NotFound(path.Child("class"), rule.Class))
		}
		errs = append(errs, rule.Match.validate(path.Child("match"))...)
	}
	return errs
}

func (c *Class) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if problems := validation.IsDNS1123Label(c.Name); problems != nil {
		errs = append(errs, field.Invalid(path.Child("name"), c.Name, strings.Join(problems, "; ")))
	}
	if len(c.NodeSelector) == 0 {
		errs = append(errs, field.Required(path.Child("nodeSelector"), "without one every node would be of this class"))
	}
	errs = append(errs, validateLabels(c.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validateLabels(c.Labels, path.Child("labels"))...)
	for _, key := range []string{ClassLabel, NamespaceLabel} {
		if value, ok := c.Labels[key]; ok {
			errs = append(errs, field.Invalid(path.Child("labels").Key(key), value, "each pod of a class has this label already"))
		}
	}
	if c.RuntimeClassName != "" {
		if problems := validation.IsDNS1123Subdomain(c.RuntimeClassName); problems != nil {
			errs = append(errs, field.Invalid(path.Child("runtimeClassName"), c.RuntimeClassName, strings.Join(problems, "; ")))
		}
	}
	for i, toleration := range c.Tolerations {
		at := path.Child("tolerations").Index(i)
		if toleration.Key == "" {
			errs = append(errs, field.Required(at.Child("key"), "a toleration without a key tolerates every taint, those for avoidance, too"))
		} else if problems := validation.IsQualifiedName(toleration.Key); problems != nil {
			errs = append(errs, field.Invalid(at.Child("key"), toleration.Key, strings.Join(problems, "; ")))
		}
		if strings.Contains(toleration.Key, AvoidTaint) || toleration.Key == EvictTaint {
			errs = append(errs, field.Invalid(at.Child("key"), toleration.Key, "pods of a class must not tolerate what makes them avoid a node"))
		}
		switch toleration.Operator {
		case "", corev1.TolerationOpEqual:
		case corev1.TolerationOpExists:
			if toleration.Value != "" {
				errs = append(errs, field.Invalid(at.Child("value"), toleration.Value, "must be empty with the operator Exists"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), toleration.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		switch toleration.Effect {
		case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			errs = append(errs, field.NotSupported(at.Child("effect"), toleration.Effect, []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
		}
	}
	errs = append(errs, validateResources(c.RequestFloors, path.Child("requestFloors"))...)
	for i, container := range c.InitContainers {
		at := path.Child("initContainers").Index(i)
		if problems := validation.IsDNS1123Label(container.Name); problems != nil {
			errs = append(errs, field.Invalid(at.Child("name"), container.Name, strings.Join(problems, "; ")))
		}
		if container.Image == "" {
			errs = append(errs, field.Required(at.Child("image"), ""))
		}
	}
	return errs
}

func (m *Match) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, list := range map[string][]string{"namespaces": m.Namespaces, "namespacePrefixes": m.NamespacePrefixes, "namePrefixes": m.NamePrefixes, "nameParts": m.NameParts} {
		if i := slices.Index(list, ""); i >= 0 {
			errs = append(errs, field.Invalid(path.Child(name).Index(i), "", "an empty entry matches everything; leave the field out"))
		}
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(m.Labels, metav1validation.LabelSelectorValidationOptions{}, path.Child("labels"))...)
	// Values of annotations need not be those of labels; only operators and keys are checked.
	if m.Annotations != nil {
		for i, expression := range m.Annotations.MatchExpressions {
			at := path.Child("annotations", "matchExpressions").Index(i)
			values := len(expression.Values) > 0
			switch expression.Operator {
			case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
				if !values {
					errs = append(errs, field.Required(at.Child("values"), "the operators In and NotIn need values"))
				}
			case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
				if values {
					errs = append(errs, field.Forbidden(at.Child("values"), "the operators Exists and DoesNotExist have none"))
				}
			default:
				errs = append(errs, field.NotSupported(at.Child("operator"), expression.Operator, []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}))
			}
		}
	}
	return append(errs, validateResources(m.RequestsAtLeast, path.Child("requestsAtLeast"))...)
}

func validateLabels(labels map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if problems := validation.IsQualifiedName(key); problems != nil {
			errs = append(errs, field.Invalid(path, key, strings.Join(problems, "; ")))
		}
		if problems := validation.IsValidLabelValue(labels[key]); problems != nil {
			errs = append(errs, field.Invalid(path.Key(key), labels[key], strings.Join(problems, "; ")))
		}
	}
	return errs
}

func validateResources(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage {
			errs = append(errs, field.NotSupported(path, name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}))
		}
		if quantity.Cmp(resource.Quantity{}) <= 0 {
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "must be more than zero"))
		}
	}
	return errs
}
