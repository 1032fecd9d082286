package partitioning

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"workload.openshift.io/partition"
)

const header = "apiVersion: partitioning.workload.openshift.io/v1alpha1\nkind: PartitioningConfiguration\n"

func TestReadConfig(t *testing.T) {
	for name, test := range map[string]struct {
		text       string
		wantSource Source
		wantTypes  []string
		wantError  string
	}{
		"nothing":                      {text: "", wantSource: SourceNodes},
		"a kind without fields":        {text: header, wantSource: SourceNodes},
		"nodes":                        {text: header + "activation: {source: Nodes}", wantSource: SourceNodes},
		"types":                        {text: header + "activation: {source: Types, types: [management, infra]}", wantSource: SourceTypes, wantTypes: []string{"management", "infra"}},
		"infrastructure":               {text: header + "activation: {source: Infrastructure}", wantSource: SourceInfrastructure, wantTypes: []string{"management"}},
		"infrastructure, other type":   {text: header + "activation: {source: Infrastructure, types: [infra]}", wantSource: SourceInfrastructure, wantTypes: []string{"infra"}},
		"JSON":                         {text: `{"apiVersion": "partitioning.workload.openshift.io/v1alpha1", "kind": "PartitioningConfiguration", "activation": {"source": "Types", "types": ["a"]}}`, wantSource: SourceTypes, wantTypes: []string{"a"}},
		"another version":              {text: strings.Replace(header, "v1alpha1", "v2", 1), wantError: `apiVersion: Unsupported value: "partitioning.workload.openshift.io/v2"`},
		"another kind":                 {text: strings.Replace(header, "Partitioning", "Other", 1), wantError: `kind: Unsupported value: "OtherConfiguration"`},
		"no kind":                      {text: "activation: {source: Nodes}", wantError: `kind: Unsupported value: ""`},
		"an unknown field":             {text: header + "activation: {sources: Nodes}", wantError: `unknown field "activation.sources"`},
		"a field in another case":      {text: header + "Activation: {}", wantError: `unknown field "Activation"`},
		"a field twice":                {text: header + "activation: {}\nactivation: {}", wantError: `"activation" already set`},
		"an unknown source":            {text: header + "activation: {source: Moon}", wantError: `activation.source: Unsupported value: "Moon": supported values: "Nodes", "Types", "Infrastructure"`},
		"types without a list":         {text: header + "activation: {source: Types}", wantError: "activation.types: Required value"},
		"nodes with a list":            {text: header + "activation: {types: [management]}", wantError: "activation.types: Forbidden"},
		"a list that is a string":      {text: header + "activation: {source: Types, types: management}", wantError: "activation.types"},
		"an invalid type":              {text: header + "activation: {source: Types, types: [a, Management]}", wantError: `activation.types[1]: Invalid value: "Management"`},
		"a type twice":                 {text: header + "activation: {source: Types, types: [a, a]}", wantError: `activation.types[1]: Duplicate value: "a"`},
		"no YAML":                      {text: ":\t:", wantError: "configuration: "},
		"two documents":                {text: header + "---\n" + header, wantError: "more than one YAML document"},
		"a header of comments":         {text: "# ours\n---\n" + header + "activation: {source: Types, types: [a]}", wantSource: SourceTypes, wantTypes: []string{"a"}},
		"a very large one":             {text: header + strings.Repeat("# comment\n", 200000), wantError: "is larger than 1048576 bytes"},
		"an activation that is null":   {text: header + "activation: null", wantSource: SourceNodes},
		"an activation that is a list": {text: header + "activation: []", wantError: "activation"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := readConfig(strings.NewReader(test.text))
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want one line with %s", err, test.wantError)
				}
				return
			}
			if err != nil || config.Activation.Source != test.wantSource || !slices.Equal(config.Activation.Types, test.wantTypes) {
				t.Errorf("got %+v, %v", config.Activation, err)
			}
		})
	}
	if config, err := readConfig(nil); err != nil || config.Activation.Source != SourceNodes {
		t.Errorf("without a file: %+v, %v", config, err)
	}
}

func TestListedTypesAreActiveBeforeTheFirstNode(t *testing.T) {
	p, client := startWith(t, Config{Activation: Activation{Source: SourceTypes, Types: []string{"management"}}}, nil,
		namespace("kube-system", "", ""), namespace("open", partition.AllowedAnnotation, "management, other"))
	if !p.activation.active("management") || p.activation.active("other") {
		t.Errorf("the types are %v", *p.activation.types.Load())
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node("a", "other"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the nodes decide for other types", func() bool { return p.activation.active("other") })
	if !p.activation.active("management") {
		t.Error("a node without the type made it inactive")
	}
	eventually(t, "only what the nodes decide is latched", func() bool {
		system, err := client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		return err == nil && system.Annotations[partition.EnabledAnnotation] == "other"
	})
}

func infrastructure(value string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": map[string]any{"name": "cluster"}}}
	if value != "" {
		object.Object["status"] = map[string]any{"cpuPartitioning": value}
	}
	return object
}

func TestInfrastructureDecides(t *testing.T) {
	kinds := map[schema.GroupVersionResource]string{infrastructures: "InfrastructureList"}
	for name, test := range map[string]struct {
		object     *unstructured.Unstructured
		wantActive bool
	}{"absent": {}, "empty": {object: infrastructure("")}, "None": {object: infrastructure("None")}, "AllNodes": {object: infrastructure("AllNodes"), wantActive: true}} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if test.object != nil {
				objects = append(objects, test.object)
			}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
			// A latch of another time has no say.
			p, _ := startWith(t, Config{Activation: Activation{Source: SourceInfrastructure, Types: []string{"management"}}}, client, namespace("kube-system", partition.EnabledAnnotation, "management"), node("a", "management"))
			if got := p.activation.active("management"); got != test.wantActive {
				t.Errorf("the type is active: %v", got)
			}
		})
	}
	t.Run("it changes", func(t *testing.T) {
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, infrastructure("None"))
		p, _ := startWith(t, Config{Activation: Activation{Source: SourceInfrastructure, Types: []string{"management"}}}, client, namespace("kube-system", "", ""))
		resource := client.Resource(infrastructures)
		for _, step := range []struct {
			value string
			want  bool
		}{{"AllNodes", true}, {"None", false}, {"AllNodes", true}} {
			if _, err := resource.Update(t.Context(), infrastructure(step.value), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the type follows "+step.value, func() bool { return p.activation.active("management") == step.want })
		}
		if err := resource.Delete(t.Context(), "cluster", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the type follows the deletion", func() bool { return !p.activation.active("management") })
	})
	t.Run("a kind that is not there is absent, a server that fails is not known", func(t *testing.T) {
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
		answer := make(chan error, 2)
		answer <- errors.New("connection refused")
		client.PrependReactor("list", "infrastructures", func(clienttesting.Action) (bool, runtime.Object, error) {
			select {
			case err := <-answer:
				return true, nil, err
			default:
				return true, nil, apierrors.NewNotFound(infrastructures.GroupResource(), "")
			}
		})
		told := make(chan bool, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := watchInfrastructure(ctx, client.Resource(infrastructures), func(on bool) { told <- on }); err == nil || len(told) > 0 {
			t.Errorf("a failure gave %v, and told %d answers", err, len(told))
		}
		if err := watchInfrastructure(ctx, client.Resource(infrastructures), func(on bool) { told <- on }); err != nil || <-told {
			t.Errorf("a missing kind gave %v", err)
		}
	})
}
