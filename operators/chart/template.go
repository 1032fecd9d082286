// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// part is what one value of the chart switches on: a companion, or what it has in a hosted cluster.
type part struct {
	name   string
	hosted bool
	// dir is the directory below deploy, and companion the name of the companion, of which there may be variants.
	dir, companion string
	// objects are what kustomize renders, and certManager what it renders where cert-manager makes the certificate; nil
	// if there is no such variant.
	objects, certManager []map[string]any
	// config is the configuration file, and certManagerCertificates its field certificates where cert-manager makes it.
	config, certManagerCertificates map[string]any
	// texts are further files that the pods read, by the name of their ConfigMap.
	texts map[string]string
	// images are the images that the pods and the configuration name.
	images map[string]bool
	// expressions are those of the template, by the placeholder that the YAML has.
	expressions map[string]string
}

const certManagerSuffix = "-cert-manager"

// partsOf reads the kustomizations of a directory.
func partsOf(deploy string) ([]*part, error) {
	var parts []*part
	paths, err := filepath.Glob(filepath.Join(deploy, "*", "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		dir := filepath.Dir(path)
		if strings.HasSuffix(dir, certManagerSuffix) {
			continue
		}
		p := &part{name: camel(filepath.Base(dir)), dir: filepath.Base(dir), texts: map[string]string{}, images: map[string]bool{}}
		if p.objects, err = render(dir); err != nil {
			return nil, err
		}
		if p.config, err = readConfig(dir); err != nil {
			return nil, err
		}
		p.companion, _ = p.config["controller"].(string)
		if _, err := os.Stat(dir + certManagerSuffix); err == nil {
			if p.certManager, err = render(dir + certManagerSuffix); err != nil {
				return nil, err
			}
			config, err := readConfig(dir + certManagerSuffix)
			if err != nil {
				return nil, err
			}
			p.certManagerCertificates, _ = config["certificates"].(map[string]any)
		}
		if p.objects = append(p.objects, p.monitored()...); p.certManager != nil {
			p.certManager = append(p.certManager, p.monitored()...)
		}
		parts = append(parts, p)
		if _, err := os.Stat(filepath.Join(dir, "hosted")); err == nil {
			p := &part{name: p.name, dir: p.dir, companion: p.companion, hosted: true}
			if p.objects, err = render(filepath.Join(dir, "hosted")); err != nil {
				return nil, err
			}
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// monitored returns the objects by which Prometheus reads the companion's metrics.
func (p *part) monitored() (objects []map[string]any) {
	namespace := "partition-" + p.companion
	metadata := func(name string) map[string]any {
		return map[string]any{"name": name, "labels": map[string]any{"app.kubernetes.io/name": p.companion, "app.kubernetes.io/part-of": "workload-partitioning"}}
	}
	monitor := metadata(p.companion)
	monitor["namespace"] = namespace
	objects = append(objects, map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": monitor,
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/name": p.companion}},
			"endpoints": []any{map[string]any{
				"port": "metrics", "scheme": "https", "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
				"tlsConfig": map[string]any{
					"serverName": "partition-controller." + namespace + ".svc",
					"ca":         map[string]any{"secret": map[string]any{"name": "webhook-certificate", "key": "ca.crt"}},
				},
			}},
		},
	})
	role := p.companion + "-metrics"
	if slices.ContainsFunc(p.objects, func(object map[string]any) bool {
		return object["kind"] == "ClusterRole" && object["metadata"].(map[string]any)["name"] == role
	}) {
		objects = append(objects, map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata(role),
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "monitoring", "namespace": "monitoring"}},
		})
	}
	return objects
}

// render returns what kustomize makes of a directory.
func render(dir string) (objects []map[string]any, err error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	for _, resource := range resources.Resources() {
		object, err := resource.Map()
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func readConfig(dir string) (config map[string]any, err error) {
	content, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	if err == nil {
		err = yaml.Unmarshal(content, &config)
	}
	return config, err
}

func (p *part) file() string {
	if p.hosted {
		return p.dir + "-hosted"
	}
	return p.dir
}

// camel is a name as templates take it.
func camel(name string) string {
	words := strings.Split(name, "-")
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}

// values is the expression of the part's values.
func (p *part) values() string {
	if p.hosted {
		return ".Values.hosted." + p.name
	}
	return ".Values." + p.name
}

// expression returns a placeholder for an expression.
func (p *part) expression(format string, arguments ...any) string {
	placeholder := fmt.Sprintf("PLACEHOLDER-%d-", len(p.expressions))
	p.expressions[placeholder] = fmt.Sprintf("{{ "+format+" }}", arguments...)
	return placeholder
}

// template returns the template of the part's objects. It adds to common the values that all parts
// have, with what the manifests have there, and to texts those of its own.
func (p *part) template(common map[string]any) ([]byte, error) {
	with, order, err := p.templates(p.objects, common)
	if err != nil {
		return nil, err
	}
	instead, more, err := p.templates(p.certManager, common)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "{{- if %s.enabled }}\n", p.values())
	when := func(condition, object string) {
		if object != "" {
			fmt.Fprintf(&text, "{{- if %s%s.certManager }}\n---\n%s{{- end }}\n", condition, p.values(), object)
		}
	}
	for _, key := range slices.Concat(order, slices.DeleteFunc(more, func(key string) bool { return with[key] != "" })) {
		if p.certManager == nil || with[key] == instead[key] {
			fmt.Fprintf(&text, "---\n%s", with[key])
			continue
		}
		when("not ", with[key])
		when("", instead[key])
	}
	text.WriteString("{{- end }}\n")
	return text.Bytes(), nil
}

// templates returns the template of each object by a key, and the keys in their order.
func (p *part) templates(objects []map[string]any, common map[string]any) (byKey map[string]string, order []string, err error) {
	byKey = map[string]string{}
	for _, object := range objects {
		metadata := object["metadata"].(map[string]any)
		key := fmt.Sprint(object["apiVersion"], object["kind"], metadata["namespace"], metadata["name"])
		p.expressions = map[string]string{}
		condition, err := p.open(object, common)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", key, err)
		}
		text, err := yaml.Marshal(p.replace(object))
		if err != nil {
			return nil, nil, err
		}
		// What looks like a template is not ours.
		result := strings.ReplaceAll(string(text), "{{", `{{ "{{" }}`)
		result = kept.ReplaceAllString(result, "    {{- if .Values.keepCRDs }}\n$0    {{- end }}\n")
		if object["kind"] == "ServiceAccount" {
			result += pullSecrets
		}
		for placeholder, expression := range p.expressions {
			result = strings.ReplaceAll(result, placeholder, expression)
		}
		if condition != "" {
			result = fmt.Sprintf("{{- if %s }}\n%s{{- end }}\n", condition, result)
		}
		byKey[key], order = result, append(order, key)
	}
	return byKey, order, nil
}

// open puts expressions into the fields that users choose, and returns the condition under which the object is there;
// empty is always.
func (p *part) open(object, common map[string]any) (condition string, err error) {
	// choose replaces a field by a value of the whole chart, whose default is what the manifests have. All must agree.
	choose := func(of map[string]any, field, value string) {
		have, given := common[value]
		if given && !reflect.DeepEqual(have, of[field]) {
			err = fmt.Errorf("%s is %v, and elsewhere %v, so one value of the chart cannot stand for both", field, of[field], have)
		}
		common[value] = of[field]
		of[field] = p.expression("toJson .Values.%s", value)
	}
	switch object["kind"] {
	case "CustomResourceDefinition":
		metadata := object["metadata"].(map[string]any)
		annotations, ok := metadata["annotations"].(map[string]any)
		if !ok {
			annotations = map[string]any{}
			metadata["annotations"] = annotations
		}
		annotations[policy] = "keep"
		return p.values() + ".crds", nil
	case "NetworkPolicy":
		if ingress, ok := object["spec"].(map[string]any)["ingress"].([]any); ok {
			ingress[0].(map[string]any)["from"] = p.expression("toJson .Values.networkPolicy.from")
		}
		return ".Values.networkPolicy.enabled", nil
	case "ServiceMonitor":
		labels := object["metadata"].(map[string]any)
		labels["labels"] = p.expression("merge (%s | fromJson) .Values.monitoring.labels | toJson", quoted(labels["labels"]))
		return ".Values.monitoring.serviceMonitors", nil
	case "ClusterRoleBinding":
		if !strings.HasSuffix(object["metadata"].(map[string]any)["name"].(string), "-metrics") {
			return "", nil
		}
		subject := object["subjects"].([]any)[0].(map[string]any)
		for field := range subject {
			if field != "kind" {
				value := "monitoring.serviceAccount." + field
				subject[field] = p.expression("required %q .Values.%s | toJson", value+": give the name and the namespace", value)
			}
		}
		return ".Values.monitoring.serviceAccount.name", nil
	case "Deployment":
		spec := object["spec"].(map[string]any)
		choose(spec, "replicas", "replicas")
		pod := spec["template"].(map[string]any)["spec"].(map[string]any)
		choose(pod, "nodeSelector", "nodeSelector")
		choose(pod, "tolerations", "tolerations")
		container := pod["containers"].([]any)[0].(map[string]any)
		choose(container, "resources", "resources")
		choose(container, "imagePullPolicy", "imagePullPolicy")
		return "", err
	case "ConfigMap":
		name := object["metadata"].(map[string]any)["name"].(string)
		data := object["data"].(map[string]any)
		if configuration.MatchString(name) {
			data["config.yaml"] = p.expression("include \"configuration\" %s | toJson", p.configuration())
			return "", nil
		}
		if p.hosted {
			return "", nil
		}
		for file, text := range data {
			p.texts[name] = text.(string)
			data[file] = p.expression("%s.%s | toJson", p.values(), name)
		}
	}
	return "", nil
}

// pullSecrets ends the template of a ServiceAccount. From there kube-apiserver takes them into all pods, also into those
// that companions start on nodes. OpenShift writes its own into the field where the chart leaves it out.
const pullSecrets = "{{- with .Values.imagePullSecrets }}\nimagePullSecrets: {{ toJson . }}\n{{- end }}\n"

// policy is the annotation that has Helm keep an object. With any other value Helm forgets the object and leaves it, too
// (pkg/action/resource_policy.go), so it must be there or not.
const policy = "helm.sh/resource-policy"

var (
	kept = regexp.MustCompile(`(?m)^ *` + regexp.QuoteMeta(policy) + `: keep\n`)
	// configuration is the name that kustomize gives the ConfigMap.
	configuration = regexp.MustCompile(`^configuration-[a-z0-9]{10}$`)
)

// replace returns a value with expressions where texts name the configuration or an image.
func (p *part) replace(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = p.replace(value[key])
		}
	case []any:
		for i := range value {
			value[i] = p.replace(value[i])
		}
	case string:
		if configuration.MatchString(value) {
			return "configuration-" + p.expression("include \"configuration\" %s | sha256sum | trunc 10", p.configuration())
		}
		// No node can have an image of this registry.
		if image, ok := strings.CutPrefix(value, "registry.invalid/"); ok {
			p.images[image] = true
			return p.expression("include \"image\" (list . %q)", image)
		}
	}
	return value
}

// configuration is the argument of the template that has the configuration.
func (p *part) configuration() string {
	images := []string{}
	settings, _ := p.config["settings"].(map[string]any)
	for name, value := range settings {
		if text, ok := value.(string); ok && strings.HasSuffix(name, "Image") {
			p.images[text] = true
			images = append(images, fmt.Sprintf("%q %q", name, text))
		}
	}
	slices.Sort(images)
	certificates := ""
	if p.certManagerCertificates != nil {
		certificates = fmt.Sprintf(` (ternary %s "" %s.certManager)`, quoted(p.certManagerCertificates), p.values())
	}
	return fmt.Sprintf("(list . %q %q (dict %s)%s)", p.name, p.companion, strings.Join(images, " "), certificates)
}

// quoted returns a value as JSON in a string of a template.
func quoted(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was read from a file
	}
	return strconv.Quote(string(data))
}

// imagesOf returns the images of all parts.
func imagesOf(parts []*part) []string {
	found := map[string]bool{}
	for _, p := range parts {
		maps.Copy(found, p.images)
	}
	return slices.Sorted(maps.Keys(found))
}

// valuesOf returns what the chart is installed with if the user chooses nothing.
func valuesOf(parts []*part, common map[string]any) map[string]any {
	values, hosted := maps.Clone(common), map[string]any{}
	values["hosted"] = hosted
	for _, p := range parts {
		of := map[string]any{"enabled": false}
		if slices.ContainsFunc(p.objects, func(object map[string]any) bool { return object["kind"] == "CustomResourceDefinition" }) {
			of["crds"] = true
		}
		if p.hosted {
			hosted[p.name] = of
			continue
		}
		if p.certManager != nil {
			of["certManager"] = false
		}
		config := maps.Clone(p.config)
		maps.DeleteFunc(config, func(field string, _ any) bool { return slices.Contains(fixed, field) })
		if settings, ok := config["settings"].(map[string]any); ok {
			settings = maps.Clone(settings)
			maps.DeleteFunc(settings, func(name string, _ any) bool { return strings.HasSuffix(name, "Image") }) // the chart knows it
			config["settings"] = settings
		}
		of["config"] = config
		for name, text := range p.texts {
			of[name] = text
		}
		values[p.name] = of
	}
	return values
}

// fixed are the fields of a configuration that the chart decides: Parts and Namespace follow from the Deployments.
var fixed = []string{"apiVersion", "kind", "controller", "parts", "namespace"}
