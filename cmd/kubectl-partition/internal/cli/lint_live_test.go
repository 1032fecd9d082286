// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeCluster answers like a kube-apiserver that has these objects, by the paths of their
// lists, and no vertical autoscaler. It refuses the lists that are forbidden.
func fakeCluster(t *testing.T, lists map[string][]any, forbidden ...string) (kubeconfig []string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(code int, object any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(object)
		}
		for _, forbidden := range forbidden {
			if r.URL.Path == forbidden {
				answer(http.StatusForbidden, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
					Message: `nodes is forbidden: User "reader" cannot list resource "nodes" at the cluster scope`})
				return
			}
		}
		if metrics := lists["/metrics"]; r.URL.Path == "/metrics" && metrics != nil {
			fmt.Fprintln(w, metrics...)
			return
		}
		if object, ok := discovery()[r.URL.Path]; ok {
			answer(http.StatusOK, object)
			return
		}
		if items, ok := lists[r.URL.Path]; ok || strings.Count(r.URL.Path, "/") >= 3 {
			if len(items) == 1 && strings.HasSuffix(r.URL.Path, "/kube-system") {
				answer(http.StatusOK, items[0])
				return
			}
			version, kind := listOf(path.Base(r.URL.Path))
			answer(http.StatusOK, map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{}, "items": append([]any{}, items...)})
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("KUBECONFIG", "/nonexistent")
	return []string{"--server", server.URL, "--cache-dir", t.TempDir()}
}

// discovery returns what says which kinds there are.
func discovery() map[string]any {
	resources := func(version string, kinds ...string) metav1.APIResourceList {
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version}
		for _, kind := range kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: kind != "Node" && kind != "Namespace", Verbs: metav1.Verbs{"get", "list"}})
		}
		return list
	}
	group := func(name, version string) metav1.APIGroup {
		v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version}
		return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
	}
	return map[string]any{
		"/api":                 metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis":                metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group("apps", "v1"), group("batch", "v1"), group("autoscaling", "v2")}},
		"/api/v1":              resources("v1", "Namespace", "Node", "Pod", "LimitRange", "ResourceQuota", "PodTemplate", "ReplicationController"),
		"/apis/apps/v1":        resources("apps/v1", "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet"),
		"/apis/batch/v1":       resources("batch/v1", "Job", "CronJob"),
		"/apis/autoscaling/v2": resources("autoscaling/v2", "HorizontalPodAutoscaler"),
	}
}

// listOf returns the version and the kind of a list of a resource.
func listOf(resource string) (version, kind string) {
	for _, of := range discovery() {
		list, _ := of.(metav1.APIResourceList)
		for _, r := range list.APIResources {
			if r.Name == resource {
				return list.GroupVersion, r.Kind + "List"
			}
		}
	}
	return "v1", "List"
}

func object(t *testing.T, text string) any {
	t.Helper()
	var object any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestLintOfACluster(t *testing.T) {
	deployment := object(t, `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app", "namespace": "ours"}, "spec": {"template": {
		"metadata": {"annotations": {"target.workload.openshift.io/management": ""}},
		"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}]}}}}`)
	namespace := object(t, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ours", "annotations": {"workload.openshift.io/allowed": "management"}}}`)
	quota := object(t, `{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cores", "namespace": "ours"}, "spec": {"hard": {"requests.management.workload.openshift.io/cores": "4k"}}}`)
	node := object(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"capacity": {"cpu": "2"}}}`)
	system := func(annotations string) any {
		return object(t, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "annotations": {`+annotations+`}}}`)
	}
	metrics := func(lists map[string][]any, active int) map[string][]any {
		lists["/metrics"] = []any{fmt.Sprintf(`apiserver_workload_partitioning_active{workload_type="management"} %d`, active)}
		return lists
	}
	lists := func(system any) map[string][]any {
		return map[string][]any{"/api/v1/namespaces": {namespace, system}, "/api/v1/namespaces/kube-system": {system}, "/api/v1/nodes": {node}, "/apis/apps/v1/deployments": {deployment}, "/api/v1/resourcequotas": {quota}}
	}
	// One node offers the type, so it is not active; static pods of that node are partitioned.
	mirror := func(node, name, metadata, resources string) any {
		return object(t, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "`+name+`", "namespace": "ours", "annotations": {"kubernetes.io/config.mirror": "x", `+metadata+`}},
			"spec": {"nodeName": "`+node+`", "containers": [{"name": "c", "resources": {`+resources+`}}]}}`)
	}
	mixed := lists(system(""))
	delete(mixed, "/apis/apps/v1/deployments")
	mixed["/api/v1/nodes"] = []any{node, object(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}, "status": {"capacity": {"cpu": "2", "management.workload.openshift.io/cores": "2k"}}}`)}
	mixed["/api/v1/pods"] = []any{
		mirror("b", "partitioned", `"target.workload.openshift.io/management": "{\"effect\":\"PreferredDuringScheduling\"}", "resources.workload.openshift.io/c": "{\"cpushares\":100}"`, `"requests": {"management.workload.openshift.io/cores": "100", "memory": "1Mi"}, "limits": {"management.workload.openshift.io/cores": "100"}`),
		mirror("b", "skipped", `"target.workload.openshift.io/management": ""`, `"requests": {"cpu": "1"}`),
	}
	// The type is active, and the node of the static pod does not have it.
	without := metrics(lists(system("")), 1)
	delete(without, "/apis/apps/v1/deployments")
	without["/api/v1/pods"] = []any{mirror("a", "skipped", `"target.workload.openshift.io/management": ""`, `"requests": {"cpu": "1", "memory": "1Mi"}`)}
	for name, test := range map[string]struct {
		cluster   map[string][]any
		forbidden []string
		code      int
		want      string
	}{
		"no node reports the type":                                {lists(system("")), nil, 2, "Deployment ours/app: workload type \"management\" ignored: no pool of this type is active here (type_inactive)\nfindings: 1, workloads: 1, of which ask for a type: 1, could not be read: 1\n"},
		"the type is latched":                                     {lists(system(`"workload.openshift.io/enabled": "management"`)), nil, 2, "findings: 0, workloads: 1, of which ask for a type: 1, could not be read: 1"},
		"kube-apiserver's metrics may not be read":                {metrics(lists(system("")), 1), []string{"/metrics"}, 2, "and which types are active there: nodes is forbidden"},
		"kube-apiserver says that it is active":                   {metrics(lists(system("")), 1), nil, 0, "findings: 0, workloads: 1"},
		"kube-apiserver says that it is not, whatever is latched": {metrics(lists(system(`"workload.openshift.io/enabled": "management"`)), 0), nil, 1, "no pool of this type is active here (type_inactive)"},
		"a right to read is lacking":                              {lists(system("")), []string{"/api/v1/nodes"}, 2, `error: nodes: nodes is forbidden: User "reader" cannot list resource "nodes" at the cluster scope`},
		"it is lacking, and kube-apiserver says what is active":   {metrics(lists(system("")), 1), []string{"/api/v1/nodes"}, 0, "findings: 0, workloads: 1"},
		"it is lacking for a static pod":                          {without, []string{"/api/v1/nodes"}, 2, `error: nodes: nodes is forbidden: User "reader" cannot list resource "nodes" at the cluster scope`},
		"static pods of a node with the type":                     {mixed, nil, 2, "Pod ours/skipped: workload type \"management\" ignored: without its CPU request the pod would become BestEffort; give a container a memory request to have it partitioned (qos_change)\nfindings: 1, workloads: 2"},
		"a static pod of a node without the type":                 {without, nil, 1, "Pod ours/skipped: workload type \"management\" ignored: no pool of this type is active here (type_inactive)\nfindings: 1, workloads: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := runLint(t, "", append(fakeCluster(t, test.cluster, test.forbidden...), "--live")...)
			if code != test.code || !strings.Contains(stdout, test.want) {
				t.Errorf("exit code %d, want %d\n%s\nwant\n%s\n%s", code, test.code, stdout, test.want, stderr)
			}
		})
	}
}
