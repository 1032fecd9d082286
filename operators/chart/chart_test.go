// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, nil) }

// generated is the chart, which takes a while.
var generated = sync.OnceValues(func() (map[string][]byte, error) { return generate("..") })

// written is the chart, in a directory, with the digests that command images adds.
func written(t *testing.T) string {
	t.Helper()
	files, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	return withDigests(t, maps.Clone(files))
}

// withDigests writes a chart into a directory, with the digests that command images adds.
func withDigests(t *testing.T, files map[string][]byte) string {
	t.Helper()
	var defaults struct{ Images map[string]string }
	if err := yaml.Unmarshal(files["values.yaml"], &defaults); err != nil || len(defaults.Images) < 5 {
		t.Fatalf("the images are %v (%v)", defaults.Images, err)
	}
	digests := map[string]string{}
	for name := range defaults.Images {
		digests[name] = "sha256:" + strings.Repeat("0", 64)
	}
	data, err := json.Marshal(digests)
	if err != nil {
		t.Fatal(err)
	}
	files["templates/_digests.tpl"] = []byte("{{- define \"digests\" }}" + string(data) + "{{ end }}\n")
	dir := filepath.Join(t.TempDir(), "workload-partitioning")
	if err := write(files, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	var result map[string]any
	if err := yaml.UnmarshalStrict([]byte("images: {registry: registry.example.com/partitioning/}\n"+text), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// dryRun returns the release that Helm would install.
func dryRun(t *testing.T, dir string, values map[string]any) (*release.Release, error) {
	t.Helper()
	chart, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler)))
	install.DryRunStrategy, install.ReleaseName, install.Namespace = action.DryRunClient, "partitioning", "partition-system"
	if install.KubeVersion, err = common.ParseKubeVersion("v1.37.2"); err != nil {
		t.Fatal(err)
	}
	got, err := install.Run(chart, values)
	if err != nil {
		return nil, err
	}
	return got.(*release.Release), nil
}

// rendered returns the objects that Helm renders.
func rendered(t *testing.T, dir string, values map[string]any) ([]*unstructured.Unstructured, error) {
	t.Helper()
	got, err := dryRun(t, dir, values)
	if err != nil {
		return nil, err
	}
	return objects(t, got.Manifest), nil
}

func objects(t *testing.T, manifests string) (objects []*unstructured.Unstructured) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, manifests)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// everything switches all on that one cluster can have.
const everything = `
cpupolicy: {enabled: true}
nodepool: {enabled: true}
hostedconfig: {enabled: true}
numaresources: {enabled: true}
tuning: {enabled: true}
workloadclasses: {enabled: true}
`

const hosted = `
hosted: {tuning: {enabled: true}, hostedconfig: {enabled: true}, numaresources: {enabled: true}}
`

func TestHelmHasNothingToSayOfTheChart(t *testing.T) {
	dir := written(t)
	for name, text := range map[string]string{"nothing is on": "", "all companions are on": everything, "what hosted clusters have is on": hosted, "all is on that is watched": everything + `
monitoring: {serviceMonitors: true, rules: true, dashboard: true, labels: {release: prometheus}, serviceAccount: {name: prometheus, namespace: monitoring}}
`} {
		t.Run(name, func(t *testing.T) {
			lint := action.NewLint()
			lint.Strict, lint.Namespace = true, "partition-system"
			result := lint.Run([]string{dir}, values(t, text))
			for _, message := range result.Messages {
				if !strings.Contains(message.Error(), "icon is recommended") {
					t.Error(message)
				}
			}
		})
	}
}

var (
	hashed = regexp.MustCompile(`configuration-[a-z0-9]{10}`)
	image  = regexp.MustCompile(`registry\.example\.com/partitioning/([a-z-]+)@sha256:0{64}`)
)

// comparable returns objects by their names, without that which must differ: hashes, images, Helm's own annotation, and
// lists that Helm renders empty. Configurations are apart.
func comparable(t *testing.T, objects []*unstructured.Unstructured) (byName map[string]any, configs []string) {
	t.Helper()
	byName = map[string]any{}
	for _, object := range objects {
		annotations := object.GetAnnotations()
		delete(annotations, "helm.sh/resource-policy")
		object.SetAnnotations(annotations)
		if object.GetKind() == "ConfigMap" && hashed.MatchString(object.GetName()) {
			config, _, _ := unstructured.NestedString(object.Object, "data", "config.yaml")
			unstructured.RemoveNestedField(object.Object, "data")
			configs = append(configs, config)
		}
		data, err := json.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		data = image.ReplaceAll(hashed.ReplaceAll(data, []byte("configuration-HASH")), []byte("registry.invalid/$1"))
		var plain any
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Fatal(err)
		}
		byName[strings.Join([]string{object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), hashed.ReplaceAllString(object.GetName(), "configuration-HASH")}, " ")] = withoutEmpty(plain)
	}
	return byName, configs
}

func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			if list, ok := below.([]any); ok && len(list) == 0 && key == "from" {
				delete(value, key)
				continue
			}
			value[key] = withoutEmpty(below)
		}
	case []any:
		for i := range value {
			value[i] = withoutEmpty(value[i])
		}
	}
	return value
}

func TestTheChartRendersWhatKustomizeDoes(t *testing.T) {
	dir := written(t)
	paths, err := filepath.Glob(filepath.Join("..", "deploy", "*", "kustomization.yaml"))
	if err != nil || len(paths) < 7 {
		t.Fatalf("%d kustomizations: %v", len(paths), err)
	}
	hostedPaths, err := filepath.Glob(filepath.Join("..", "deploy", "*", "hosted", "kustomization.yaml"))
	if err != nil || len(hostedPaths) < 3 {
		t.Fatalf("%d kustomizations of hosted clusters: %v", len(hostedPaths), err)
	}
	for _, path := range append(paths, hostedPaths...) {
		path = filepath.Dir(path)
		name, err := filepath.Rel(filepath.Join("..", "deploy"), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			text := camel(strings.TrimSuffix(name, "-cert-manager")) + ": {enabled: true}"
			if strings.HasSuffix(name, "-cert-manager") {
				text = strings.TrimSuffix(text, "}") + ", certManager: true}"
			}
			if companion, is := strings.CutSuffix(name, "/hosted"); is {
				text = "hosted: {" + companion + ": {enabled: true}}"
			}
			theirs, err := rendered(t, dir, values(t, text))
			if err != nil {
				t.Fatal(err)
			}
			var ours []*unstructured.Unstructured
			plain, err := render(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range plain {
				ours = append(ours, &unstructured.Unstructured{Object: object})
			}
			want, wantConfigs := comparable(t, ours)
			got, gotConfigs := comparable(t, theirs)
			for key := range want {
				if !reflect.DeepEqual(got[key], want[key]) {
					t.Errorf("%s: Helm renders\n%s\nkustomize\n%s", key, pretty(got[key]), pretty(want[key]))
				}
			}
			for key := range got {
				if want[key] == nil {
					t.Errorf("only Helm renders %s", key)
				}
			}
			if len(gotConfigs) != len(wantConfigs) || !strings.HasSuffix(name, "/hosted") && len(gotConfigs) != 1 {
				t.Fatalf("Helm renders %d configurations, kustomize %d", len(gotConfigs), len(wantConfigs))
			}
			for i := range gotConfigs {
				checkConfig(t, gotConfigs[i], wantConfigs[i])
			}
		})
	}
}

// checkConfig checks that a configuration says what kustomize's does, but for the images, and that the program takes it.
func checkConfig(t *testing.T, got, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := configv1alpha1.Read(path, "partition-system"); err != nil {
		t.Error(err)
	}
	var a, b map[string]any
	if err := errors.Join(yaml.Unmarshal(image.ReplaceAll([]byte(got), []byte("$1")), &a), yaml.Unmarshal([]byte(want), &b)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("Helm's configuration is\n%s\nkustomize's\n%s", got, want)
	}
}

func pretty(value any) string {
	data, _ := yaml.Marshal(value)
	return string(data)
}

func TestTheNotesNameWhatIsOn(t *testing.T) {
	dir := written(t)
	for text, want := range map[string]string{
		"": "No companion is switched on",
		"cpupolicy: {enabled: true}\nhosted: {tuning: {enabled: true}}": "Companions: cpupolicy, hosted.tuning.",
		"hosted: {tuning: {enabled: true}}":                             "Companions: hosted.tuning.",
	} {
		got, err := dryRun(t, dir, values(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.Info.Notes, want) {
			t.Errorf("with %q the notes are %q, want %q", text, got.Info.Notes, want)
		}
	}
}

func TestValuesThatMeanNothingAreRefused(t *testing.T) {
	dir := written(t)
	for name, test := range map[string]struct{ values, want string }{
		"a companion that is not there":         {"cpupolicies: {enabled: true}", "cpupolicies"},
		"a switch that is no boolean":           {"cpupolicy: {enabled: sometimes}", "/cpupolicy/enabled"},
		"no replica":                            {"replicas: 0", "/replicas"},
		"a field that no configuration has":     {"cpupolicy: {config: {leader: true}}", "leader"},
		"a setting of another companion":        {"cpupolicy: {config: {settings: {rulesFile: /a}}}", "rulesFile"},
		"a time that is a number":               {"cpupolicy: {config: {settings: {switchTimeout: 30}}}", "/cpupolicy/config/settings/switchTimeout"},
		"another companion in a configuration":  {"cpupolicy: {config: {controller: tuning}}", "controller"},
		"settings for a companion without any":  {"nodepool: {config: {settings: {a: b}}}", "settings"},
		"an image of a program that is unknown": {"images: {partition-agents: a}", "partition-agents"},
		"a label of nodes that is no text":      {"nodeSelector: {infra: true}", "/nodeSelector/infra"},
		"a label that is a number":              {"monitoring: {labels: {release: 1}}", "/monitoring/labels/release"},
		"a Secret that is a text":               {"imagePullSecrets: [pull]", "/imagePullSecrets/0"},
		"a Secret without a name":               {"imagePullSecrets: [{}]", "'/imagePullSecrets/0': missing property 'name'"},
		"a Secret whose name is empty":          {"imagePullSecrets: [{name: ''}]", "/imagePullSecrets/0/name"},
		"a toleration that is a text":           {"tolerations: [infra]", "/tolerations/0"},
		"an unknown way to pull images":         {"imagePullPolicy: always", "/imagePullPolicy"},
		"no resources":                          {"resources: null", "missing property 'resources'"},
		"no requests":                           {"resources: {requests: null}", "'/resources': missing property 'requests'"},
		"no request of memory":                  {"resources: {requests: {memory: null}}", "'/resources/requests': missing property 'memory'"},
		"a request of no memory":                {"resources: {requests: {memory: 0Mi}}", "/resources/requests/memory"},
		"a request of zero bytes":               {"resources: {requests: {memory: 0}}", "/resources/requests/memory"},
		"a ServiceAccount without a namespace":  {"images: {registry: a}\ncpupolicy: {enabled: true}\nmonitoring: {serviceAccount: {name: prometheus}}", "monitoring.serviceAccount.namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			var given map[string]any
			if err := yaml.Unmarshal([]byte(test.values), &given); err != nil {
				t.Fatal(err)
			}
			if _, err := rendered(t, dir, given); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want one about %q", err, test.want)
			}
		})
	}
	if _, err := rendered(t, dir, map[string]any{"cpupolicy": map[string]any{"enabled": true}}); err == nil || !strings.Contains(err.Error(), "images.registry") {
		t.Errorf("without a registry the error is %v", err)
	}
}

func TestValuesReachTheObjects(t *testing.T) {
	dir := written(t)
	all, err := rendered(t, dir, values(t, `
replicas: 1
nodeSelector: {a: b}
tolerations: [{operator: Exists}]
resources: {requests: {cpu: 20m, memory: 1Gi}}
imagePullSecrets: [{name: pull}]
keepCRDs: false
networkPolicy: {from: [{ipBlock: {cidr: 192.0.2.0/28}}]}
monitoring: {serviceMonitors: true, rules: true, dashboard: true, labels: {release: prometheus}, serviceAccount: {name: prometheus, namespace: monitoring}}
cpupolicy: {enabled: true, config: {settings: {driver: rke2, agentImage: "registry.example.com/agent@sha256:1"}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, object := range all {
		kind := object.GetKind()
		found[kind]++
		field := func(path ...string) string {
			value, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
			data, _ := json.Marshal(value)
			return string(data)
		}
		want := map[string]map[string]string{
			"Deployment": {
				"spec.replicas": "1", "spec.template.spec.nodeSelector": `{"a":"b","kubernetes.io/os":"linux"}`, "spec.template.spec.tolerations": `[{"operator":"Exists"}]`,
			},
			"ServiceAccount": {"imagePullSecrets": `[{"name":"pull"}]`},
			"ServiceMonitor": {"metadata.labels.release": `"prometheus"`, "metadata.labels.app\x00kubernetes\x00io/name": `"cpupolicy"`},
			"PrometheusRule": {"metadata.labels.release": `"prometheus"`},
		}[kind]
		for path, value := range want {
			var names []string
			for _, name := range strings.Split(path, ".") {
				names = append(names, strings.ReplaceAll(name, "\x00", "."))
			}
			if got := field(names...); got != value {
				t.Errorf("%s %s: %s is %s, want %s", kind, object.GetName(), path, got, value)
			}
		}
		text := pretty(object.Object)
		switch {
		case kind == "Deployment" && !strings.Contains(text, "memory: 1Gi"),
			kind == "CustomResourceDefinition" && strings.Contains(text, "resource-policy"),
			kind == "NetworkPolicy" && object.GetNamespace() == "partition-cpupolicy" && !strings.Contains(text, "cidr: 192.0.2.0/28"),
			kind == "ConfigMap" && strings.HasPrefix(object.GetName(), "configuration-") && (!strings.Contains(text, "driver: rke2") || !strings.Contains(text, "agentImage: registry.example.com/agent@sha256:1")),
			kind == "ClusterRoleBinding" && object.GetName() == "cpupolicy-metrics" && !strings.Contains(text, "name: prometheus\n  namespace: monitoring"),
			kind == "PrometheusRule" && !strings.Contains(text, "{{ $labels"):
			t.Errorf("%s %s is\n%s", kind, object.GetName(), text)
		}
	}
	for kind, least := range map[string]int{"Deployment": 2, "ServiceAccount": 3, "ServiceMonitor": 1, "PrometheusRule": 1, "NetworkPolicy": 3, "ClusterRoleBinding": 3} {
		if found[kind] < least {
			t.Errorf("there are %d objects %s, want %d", found[kind], kind, least)
		}
	}
	keeping, err := rendered(t, dir, values(t, "cpupolicy: {enabled: true}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range keeping {
		if is := object.GetAnnotations()["helm.sh/resource-policy"] == "keep"; is != (object.GetKind() == "CustomResourceDefinition") {
			t.Errorf("by default Helm keeps %s: %t", key(object), is)
		}
	}
	some, err := rendered(t, dir, values(t, "cpupolicy: {enabled: true, crds: false}\nnetworkPolicy: {enabled: false}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range some {
		if slices.Contains([]string{"CustomResourceDefinition", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"}, object.GetKind()) || object.GetName() == "cpupolicy-metrics" && object.GetKind() == "ClusterRoleBinding" {
			t.Errorf("there is %s %s", object.GetKind(), object.GetName())
		}
	}
}

// TestInstallUpgradeAndRemove is what users of Helm do, on a real kube-apiserver: from the chart of another revision to this one,
// while a companion works on a node.
func TestInstallUpgradeAndRemove(t *testing.T) {
	plane := testenv.Start(t)
	dir := written(t)
	chart, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	settings := cli.New()
	settings.KubeConfig = plane.Kubeconfig
	settings.SetNamespace("partition-system")
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := config.Init(settings.RESTClientGetter(), "partition-system", "secret"); err != nil {
		t.Fatal(err)
	}
	// There is no controller that would make a Deployment ready.
	install := action.NewInstall(config)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy = "partitioning", "partition-system", true, kube.HookOnlyStrategy
	given := values(t, everything+"keepCRDs: false\n")
	first, err := install.RunWithContext(t.Context(), older(t, chart), given)
	if err != nil {
		t.Fatal(err)
	}
	installed := objects(t, first.(*release.Release).Manifest)
	if len(installed) < 100 {
		t.Errorf("there are only %d objects", len(installed))
	}
	exists(t, plane.Client, installed, true)

	// What companions write is theirs over an upgrade.
	secret := &unstructured.Unstructured{}
	secret.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	secret.SetNamespace("partition-cpupolicy")
	secret.SetName("webhook-certificate")
	mine := client.RawPatch(types.MergePatchType, []byte(`{"stringData": {"tls.crt": "mine"}}`))
	if err := plane.Client.Patch(t.Context(), secret, mine); err != nil {
		t.Fatal(err)
	}
	webhooks := &unstructured.Unstructured{}
	webhooks.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"})
	webhooks.SetName("cpupolicy.workload.openshift.io")
	if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(webhooks), webhooks); err != nil {
		t.Fatal(err)
	}
	hooks, _, _ := unstructured.NestedSlice(webhooks.Object, "webhooks")
	bundle := base64.StdEncoding.EncodeToString(plane.Config.CAData)
	for _, hook := range hooks {
		hook.(map[string]any)["clientConfig"].(map[string]any)["caBundle"] = bundle
	}
	if err := unstructured.SetNestedSlice(webhooks.Object, hooks, "webhooks"); err != nil {
		t.Fatal(err)
	}
	if err := plane.Client.Update(t.Context(), webhooks); err != nil {
		t.Fatal(err)
	}

	// Only cpupolicy's controller may write its claims, and it is known by its token.
	as := rest.CopyConfig(plane.Config)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:partition-cpupolicy:partition-controller", Groups: []string{"system:masters"},
		Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=test"}},
	}
	controller, err := client.New(as, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	underWay := objects(t, operation)
	for _, object := range underWay {
		// A new kind takes a moment.
		testenv.Eventually(t, time.Minute, func() error { return controller.Create(t.Context(), object) })
	}

	upgrade := action.NewUpgrade(config)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.ServerSideApply = "partition-system", kube.HookOnlyStrategy, "auto"
	less := values(t, strings.Replace(everything, "nodepool: {enabled: true}", "nodepool: {enabled: false}", 1)+"keepCRDs: false\nreplicas: 1\n")
	less["cpupolicy"].(map[string]any)["config"] = map[string]any{"settings": map[string]any{"driver": "rke2"}}
	second, err := upgrade.RunWithContext(t.Context(), "partitioning", chart, less)
	if err != nil {
		t.Fatal(err)
	}
	upgraded := objects(t, second.(*release.Release).Manifest)
	exists(t, plane.Client, upgraded, true)
	names := map[string]bool{}
	for _, object := range upgraded {
		names[key(object)] = true
	}
	gone := slices.DeleteFunc(slices.Clone(installed), func(object *unstructured.Unstructured) bool { return names[key(object)] })
	if !slices.ContainsFunc(gone, func(object *unstructured.Unstructured) bool {
		return object.GetNamespace() == "partition-cpupolicy" && hashed.MatchString(object.GetName())
	}) {
		t.Error("another configuration has the same name, so pods would not read it")
	}
	exists(t, plane.Client, gone, false)
	for _, object := range underWay {
		now := object.DeepCopy()
		if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(object), now); err != nil || now.GetResourceVersion() != object.GetResourceVersion() {
			t.Errorf("the upgrade has changed %s (%v)", key(object), err)
		}
	}
	if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	if data, _, _ := unstructured.NestedString(secret.Object, "data", "tls.crt"); data != "bWluZQ==" {
		t.Errorf("after the upgrade the certificate is %q", data)
	}

	if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(webhooks), webhooks); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(pretty(webhooks.Object), bundle), len(hooks); got != want || want == 0 {
		t.Errorf("after the upgrade %d of %d webhooks have their CA", got, want)
	}

	remove := action.NewUninstall(config)
	remove.WaitStrategy, remove.Timeout = kube.HookOnlyStrategy, time.Minute
	if _, err := remove.Run("partitioning"); err != nil {
		t.Fatal(err)
	}
	exists(t, plane.Client, installed, false)
}

// An operation of cpupolicy that is under way when its chart is upgraded: what a user asked for, the claim on the node, the
// lock of the control plane and the Job on the node.
const operation = `
apiVersion: cpupolicy.workload.openshift.io/v1alpha1
kind: CPUManagerPolicy
metadata: {name: workers}
spec: {policy: static, nodes: {names: [worker-1]}}
---
apiVersion: v1
kind: Node
metadata:
  name: worker-1
  labels: {role: worker}
  annotations: {nodegroup.workload.openshift.io/claim: '{"owner":"cpupolicy","operation":"static-a1","since":"2026-11-23T10:00:00Z"}'}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: partition-control-plane
  namespace: kube-system
  annotations: {nodegroup.workload.openshift.io/holders: '[{"owner":"cpupolicy","operation":"static-a1","node":"worker-1","since":"2026-11-23T10:00:00Z"}]'}
---
apiVersion: batch/v1
kind: Job
metadata: {name: cpu-policy-static-a1, namespace: partition-cpupolicy, labels: {workload.openshift.io/companion: cpupolicy}}
spec:
  template:
    spec: {restartPolicy: Never, nodeName: worker-1, containers: [{name: agent, image: registry.example.com/agent}]}
`

// older returns the chart of another revision, or this one if there is none.
func older(t *testing.T, this *chartv2.Chart) *chartv2.Chart {
	t.Helper()
	dir := os.Getenv("TEST_ASSET_CHART")
	if dir == "" {
		t.Log("TEST_ASSET_CHART names no older chart, so this one is upgraded; make operators-chart-test makes that of CHART_FROM, if git has this revision")
		return this
	}
	files := map[string][]byte{}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files[path], err = os.ReadFile(filepath.Join(dir, path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	chart, err := loader.Load(withDigests(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

func key(object *unstructured.Unstructured) string {
	return strings.Join([]string{object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName()}, " ")
}

// exists checks that objects are there, or gone. A namespace only begins to go, since nothing here empties it.
func exists(t *testing.T, c client.Client, objects []*unstructured.Unstructured, want bool) {
	t.Helper()
	testenv.Eventually(t, time.Minute, func() error {
		var errs []error
		for _, object := range objects {
			found := &unstructured.Unstructured{}
			found.SetGroupVersionKind(object.GroupVersionKind())
			err := c.Get(context.Background(), client.ObjectKeyFromObject(object), found)
			if client.IgnoreNotFound(err) != nil {
				errs = append(errs, err)
			} else if is := !apierrors.IsNotFound(err) && found.GetDeletionTimestamp() == nil; is != want {
				errs = append(errs, fmt.Errorf("%s exists: %t, want %t", key(object), is, want))
			}
		}
		return errors.Join(errs...)
	})
}

// TestTheSchemaSaysWhatTheFieldsMean: it is what editors show.
func TestTheSchemaSaysWhatTheFieldsMean(t *testing.T) {
	files, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(files["values.schema.json"], &schema); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"cpupolicy.config.settings.switchTimeout", "cpupolicy.config.certificates.names", "workloadclasses.config.settings.machines", "tuning.config.hostedConnection"} {
		below := schema
		for _, name := range strings.Split(path, ".") {
			properties, ok := below["properties"].(map[string]any)
			if !ok || properties[name] == nil {
				t.Fatalf("%s: there is no %s among %v", path, name, slices.Sorted(maps.Keys(properties)))
			}
			below = properties[name].(map[string]any)
		}
		if below["description"] == nil {
			t.Errorf("%s has no description", path)
		}
	}
	again, err := generate("..")
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if !bytes.Equal(files[name], again[name]) {
			t.Errorf("%s differs from one run to the next", name)
		}
	}
}
