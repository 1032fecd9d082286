// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// deepest is how far down an object is looked through.
const deepest = 20

// foreign returns an object of a kind that is not Kubernetes' own once for each of its pod templates, and the objects
// that it has inside, such as a Template of OpenShift. The error is that of such an object.
func (d *document) foreign(o *object) (objects []*object, err error) {
	if pods := podsOfPrometheus(o); pods != nil {
		o.pods = pods
		return []*object{o}, nil
	}
	var whole any
	if json.Unmarshal(o.json, &whole) != nil {
		return nil, nil
	}
	first := true
	walk(whole, nil, func(value any, path []string) (further bool) {
		fields, ok := value.(map[string]any)
		switch {
		case err != nil:
			return false
		case !ok || len(path) == 0:
			return true
		case isObject(fields):
			var found []*object
			found, err = d.collect(below(o.json, path), append(o.path[:len(o.path):len(o.path)], path...), head{})
			objects = append(objects, found...)
			return false
		case isTemplate(fields):
			found := *o
			found.pods = templateAt(path)
			found.pods.further = !first
			first = false
			objects = append(objects, &found)
			return false
		}
		return true
	})
	if first && mayConfigureHosts(o.json) {
		objects = append(objects, o)
	}
	return objects, err
}

// walk calls a function with all that is in an object, but for its metadata and its status, and with the path there. If the function
// returns false, it leaves out what is further down.
func walk(value any, path []string, see func(value any, path []string) (further bool)) {
	if len(path) > deepest || !see(value, path) {
		return
	}
	switch value := value.(type) {
	case []any:
		for i := range value {
			walk(value[i], append(path[:len(path):len(path)], strconv.Itoa(i)), see)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			// What is in a status is not run.
			if len(path) == 0 && (key == "metadata" || key == "status") {
				continue
			}
			walk(value[key], append(path[:len(path):len(path)], key), see)
		}
	}
}

// isObject reports whether a mapping is an object of the API.
func isObject(value map[string]any) bool {
	kind, _ := value["kind"].(string)
	version, _ := value["apiVersion"].(string)
	_, hasMetadata := value["metadata"].(map[string]any)
	return kind != "" && version != "" && hasMetadata
}

// isTemplate reports whether a mapping is a pod template: it has a spec with containers, each of which has a name.
func isTemplate(value map[string]any) bool {
	spec, ok := value["spec"].(map[string]any)
	if !ok {
		return false
	}
	containers, ok := spec["containers"].([]any)
	return ok && len(containers) > 0 && !slices.ContainsFunc(containers, func(container any) bool {
		fields, ok := container.(map[string]any)
		name, _ := fields["name"].(string)
		return !ok || name == ""
	})
}

// prometheusKinds are the kinds of the Prometheus operator that have pods, with the container that the field resources
// of their spec is for (its API reference; podMetadata has the pods' annotations).
var prometheusKinds = map[string]string{"Prometheus": "prometheus", "PrometheusAgent": "prometheus", "Alertmanager": "alertmanager", "ThanosRuler": "thanos-ruler"}

func podsOfPrometheus(o *object) *podPath {
	main, ok := prometheusKinds[o.Kind]
	if !ok || o.group != "monitoring.coreos.com" {
		return nil
	}
	return &podPath{main: main, metadata: []string{"spec", "podMetadata"}}
}

// podsJSON returns a pod template of an object that has only the metadata of its pods, and some of what is in their
// containers. The operator adds the rest.
func (o *object) podsJSON() json.RawMessage {
	var spec map[string]any
	if json.Unmarshal(below(o.json, []string{"spec"}), &spec) != nil {
		return json.RawMessage("{}")
	}
	main := map[string]any{"name": o.pods.main, "resources": spec["resources"]}
	containers := []any{main}
	further, _ := spec["containers"].([]any)
	for _, container := range further {
		// One of this name changes the operator's.
		if fields, ok := container.(map[string]any); ok && fields["name"] == o.pods.main {
			maps.Copy(main, fields)
		} else {
			containers = append(containers, container)
		}
	}
	template, err := json.Marshal(map[string]any{"metadata": spec["podMetadata"], "spec": map[string]any{"containers": containers}})
	if err != nil {
		panic(err) // it was JSON
	}
	return template
}
