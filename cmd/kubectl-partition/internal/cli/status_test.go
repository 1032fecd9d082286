// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/explain"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
	"workload.openshift.io/partition"
)

func minute(n int) metav1.Time { return metav1.NewTime(time.Date(2026, 11, 23, 5, n, 0, 0, time.UTC)) }

// A cluster in which nearly everything is wrong.
func wrong() *status.Status {
	guaranteed, _ := partition.RuleOf(partition.ReasonGuaranteed)
	constrained, _ := partition.RuleOf(partition.ReasonNamespaceConstrainsCPU)
	invalid, _ := partition.RuleOf(partition.ReasonInvalidTarget)
	s := &status.Status{
		Servers: []status.Server{
			{URL: "https://api.example.com:6443", Configured: true, Plugin: status.Present, Types: map[string]status.ServerType{"management": {Active: true, Unlatched: true}, "infra": {Active: true}}},
			{URL: "https://192.0.2.1:6443", Plugin: status.Present, Types: map[string]status.ServerType{"management": {Active: true}}},
			{URL: "https://192.0.2.2:6443", Plugin: status.Absent},
			{URL: "https://192.0.2.3:6443", Plugin: status.Unreachable, Error: "connection refused"},
		},
		Types: []status.Type{
			{Name: "infra", Disagree: true, Pods: 1, NodesReporting: 13},
			{Name: "management", Active: ptr.To(true), Latched: true, Since: ptr.To(minute(1)), NodesReporting: 12, Missing: []string{"late"}, Pods: 26, Unscheduled: 2, RequestedMillicores: 10400, CoresMillicores: 96000},
			{Name: "rare", Active: ptr.To(false), NodesReporting: 1, Missing: []string{"node-0", "node-1", "node-2", "node-3", "node-4", "node-5", "node-6", "node-7", "node-8", "node-9", "node-10"}},
			{Name: "unread", Missing: []string{"node-0"}},
		},
		Skipped: []status.Skipped{
			{Type: "management", Reason: partition.ReasonGuaranteed, Text: guaranteed.Text, Pods: status.Pods{Count: 12, Newest: []status.Pod{{Namespace: "a", Name: "new", Created: minute(9)}, {Namespace: "a", Name: "old", Created: minute(2)}}}},
			{Type: "management", Reason: partition.ReasonNamespaceConstrainsCPU, Text: constrained.Text, Pods: status.Pods{Count: 1, Newest: []status.Pod{{Namespace: "b", Name: "web", Created: minute(3), Detail: "LimitRange \"limits\" \x1b[31m"}}}},
			{Type: "infra", Reason: partition.ReasonNamespaceConstrainsCPU, Text: constrained.Text, Pods: status.Pods{Count: 2, Newest: []status.Pod{{Namespace: "b", Name: "one", Created: minute(2), Detail: "LimitRange \"limits\""}, {Namespace: "a", Name: "two", Created: minute(1), Detail: "LimitRange \"other\""}}}},
			{Reason: partition.ReasonInvalidTarget, Text: invalid.Text, Pods: status.Pods{Count: 1, Newest: []status.Pod{{Namespace: "b", Name: "static", Created: minute(1), Detail: "metadata.annotations: it is wrong"}}}},
		},
		Undecided: &status.Pods{Count: 2, Newest: []status.Pod{{Namespace: "c", Name: "y", Created: minute(5)}, {Namespace: "c", Name: "x", Created: minute(4)}}},
		NotAllowed: []status.PodNotAllowed{
			{Namespace: "tenant", Name: "planted", Node: "node-0", Type: "management", Partitioned: true},
			{Namespace: "tenant", Name: "waits", Type: "management", Partitioned: true},
			{Namespace: "tenant", Name: "cores", Node: "node-1", Type: "management"},
		},
		Unbounded:   []status.Unbounded{{Namespace: "a", Type: "infra"}, {Namespace: "a", Type: "management"}, {Namespace: "b", Type: "management"}},
		Autoscalers: []status.Autoscaler{{Kind: "HorizontalPodAutoscaler", Namespace: "a", Name: "web", Target: "Deployment/web", Problem: "it never works"}},
		Unknown:     []status.Unknown{{Right: "list nodes", What: "which nodes report the types", Error: "forbidden"}, {What: "which pods there are", Error: "too many requests"}},
	}
	for i := range 12 {
		node := status.Node{Name: fmt.Sprint("node-", i), Type: "management", Pods: 2, RequestedMillicores: int64(4000 - 300*i), CoresMillicores: 8000, ReservedMillicores: 2000}
		switch i {
		case 0:
			node.PoolCPUs = ptr.To(1)
			node.Largest = &status.Largest{Namespace: "tenant", Name: "planted", Millicores: 3600}
		case 1:
			node.PoolCPUs = ptr.To(0)
			node.Largest = &status.Largest{Namespace: "a", Name: "b", Millicores: 3600}
		case 2:
			node.ReservedMillicores = 0
			node.Largest = &status.Largest{Namespace: "a", Name: "c", Millicores: 3000}
		case 3:
			node.Largest = &status.Largest{Namespace: "a", Name: "d", Millicores: 2500}
		case 4:
			node.Largest = &status.Largest{Namespace: "a", Name: "e", Millicores: 2000}
		}
		s.Nodes = append(s.Nodes, node)
	}
	return s
}

func TestStatusPrints(t *testing.T) {
	well := &status.Status{
		Servers: []status.Server{{URL: "https://192.0.2.1:6443", Configured: true, Plugin: status.Present, Types: map[string]status.ServerType{"management": {Active: true}}}},
		Types:   []status.Type{{Name: "management", Active: ptr.To(true), Latched: true, Since: ptr.To(minute(1)), NodesReporting: 1, Pods: 2, RequestedMillicores: 600, CoresMillicores: 2000}},
		Nodes:   []status.Node{{Name: "partitioned", Type: "management", Pods: 2, RequestedMillicores: 600, CoresMillicores: 2000, ReservedMillicores: 1000}},
	}
	rule, _ := partition.RuleOf(partition.ReasonNodeDoesNotCount)
	well.Skipped = []status.Skipped{{Type: "management", Reason: rule.Reason, Text: rule.Text, Pods: status.Pods{Count: 1, Newest: []status.Pod{{Namespace: "a", Name: "on-windows", Created: minute(2)}}}}}
	if well.Found() {
		t.Error("something is wrong with a pod for a node that does not count")
	}
	for name, test := range map[string]struct {
		status *status.Status
		wide   bool
	}{
		"well.txt":       {well, false},
		"wrong.txt":      {wrong(), false},
		"wrong-wide.txt": {wrong(), true},
		"empty.txt":      {&status.Status{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printStatus(&out, test.status, test.wide); err != nil {
				t.Fatal(err)
			}
			expectGolden(t, "status/"+name, out.String())
		})
	}
}

// What may not be listed is no zero.
func TestStatusPrintsNoCountOfWhatItDoesNotKnow(t *testing.T) {
	s := &status.Status{
		Types: []status.Type{{Name: "management", Active: ptr.To(true), NodesReporting: 3, Pods: 4, CoresMillicores: 5, RequestedMillicores: 6}},
		Nodes: []status.Node{{Name: "n", Type: "management", Pods: 4, CoresMillicores: 5, RequestedMillicores: 6, ReservedMillicores: 7}},
	}
	for _, test := range []struct {
		nodes, pods    bool
		ofType, ofNode string
	}{
		{false, false, "management yes - 3 0 4 0 6m 5m", "n management 4 6m 5m 120% 7m ? >=86%"},
		{true, false, "management yes - ? ? 4 0 6m ?", "n management 4 6m ? ? ? ? >=86%"},
		{false, true, "management yes - 3 0 ? ? ? 5m", "n management ? ? 5m ? 7m ? ?"},
	} {
		s.NodesUnknown, s.PodsUnknown = test.nodes, test.pods
		var out bytes.Buffer
		if err := printStatus(&out, s, false); err != nil {
			t.Fatal(err)
		}
		var rows []string
		for line := range strings.Lines(out.String()) {
			rows = append(rows, strings.Join(strings.Fields(line), " "))
		}
		if !slices.Contains(rows, test.ofType) || !slices.Contains(rows, test.ofNode) {
			t.Errorf("with nodes unknown: %t, and pods: %t, it prints\n%s\nwant\n%s\n%s", test.nodes, test.pods, out.String(), test.ofType, test.ofNode)
		}
	}
}

func TestExplainPrints(t *testing.T) {
	result := explanations{
		Items: []*explain.Explanation{
			{Kind: "Pod", Namespace: "a", Name: "runs", Type: "management", Effect: partition.Preferred, Outcome: partition.Partitioned, CoresMillicores: 400, Node: "n1", NodeReports: ptr.To(true),
				Containers: []explain.Container{{Name: "c", RequestMillicores: 400, LimitMillicores: 500}, {Name: "d"}}},
			{Kind: "Pod", Namespace: "a", Name: "lost", Type: "management", Effect: partition.Preferred, Outcome: partition.Partitioned, CoresMillicores: 400, Node: "n2", NodeReports: ptr.To(false), Change: []string{"give node n2 a pool"}},
			{Kind: "Pod", Namespace: "a", Name: "ended", Type: "management", Effect: partition.Preferred, Outcome: partition.Partitioned, CoresMillicores: 400, Node: "n3", Ended: true},
			{Kind: "Pod", Namespace: "a", Name: "skipped", Type: "management", Outcome: partition.Skipped, Reason: partition.ReasonGuaranteed, Why: "workload type \"management\" ignored: \x1b[31m", Change: []string{"create it again"}},
			{Kind: "Pod", Namespace: "a", Name: "ordinary", Why: "it has no target annotation"},
			{Kind: "Deployment", Namespace: "a", Name: "room", Simulated: true, Type: "management", Effect: partition.Required, Outcome: partition.Partitioned, CoresMillicores: 400,
				Room: []explain.Room{{Node: "n1", FreeMillicores: 8000, Enough: true}, {Node: "n2", FreeMillicores: 100}}},
			{Kind: "Deployment", Namespace: "a", Name: "none", Simulated: true, Type: "management", Effect: partition.Required, Outcome: partition.Partitioned, CoresMillicores: 9000,
				Room: []explain.Room{{Node: "n1", FreeMillicores: 8000}}},
			{Kind: "Deployment", Namespace: "a", Name: "nowhere", Simulated: true, Type: "management", Effect: partition.Required, Outcome: partition.Partitioned, CoresMillicores: 400, Room: []explain.Room{}},
		},
		Unknown: []status.Unknown{{Right: "list limitranges", What: "whether the namespace constrains cpu", Error: "forbidden"}},
	}
	var out bytes.Buffer
	if err := printExplanations(&out, result, false); err != nil {
		t.Fatal(err)
	}
	expectGolden(t, "status/"+"explain.txt", out.String())
}

const manifests = `
apiVersion: v1
kind: Namespace
metadata: {name: a, annotations: {workload.openshift.io/allowed: management}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %s}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {target.workload.openshift.io/management: ""}
    spec:
      containers:
      - {name: c, image: i, resources: {requests: {cpu: 400m, memory: 1Mi}, limits: {cpu: %s, memory: 1Mi}}}
---
apiVersion: example.com/v1
kind: Other
metadata: {name: unknown}
`

const minimum = `
---
apiVersion: v1
kind: LimitRange
metadata: {name: minimum, namespace: a}
spec: {limits: [{type: Container, min: {cpu: 100m}}]}
`

// What the cluster says of a namespace counts as well as what files say of it.
func TestExplainOfFilesAndACluster(t *testing.T) {
	limitRange := func(name string) any {
		return object(t, `{"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "`+name+`", "namespace": "a"}, "spec": {"limits": [{"type": "Container", "min": {"cpu": "100m"}}]}}`)
	}
	unbounded := strings.Replace(minimum, "{cpu: 100m}", "{memory: 1}", 1)
	for name, test := range map[string]struct {
		input string
		lists map[string][]any
		want  string
	}{
		"a LimitRange of the cluster":            {fmt.Sprintf(manifests, "a", "500m"), map[string][]any{"/api/v1/namespaces/a/limitranges": {limitRange("other")}}, "skipped, namespace_constrains_cpu"},
		"one that a file replaces":               {fmt.Sprintf(manifests, "a", "500m") + unbounded, map[string][]any{"/api/v1/namespaces/a/limitranges": {limitRange("minimum")}}, "partitioned (if it were created now)"},
		"one of a file and none in the cluster":  {fmt.Sprintf(manifests, "a", "500m") + minimum, nil, "skipped, namespace_constrains_cpu"},
		"none and a namespace of the file alone": {fmt.Sprintf(manifests, "a", "500m"), nil, "partitioned (if it were created now)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "input.yaml")
			// The cluster does not have the kind example.com/Other, which is left out all the same.
			if err := os.WriteFile(path, []byte(test.input), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errOut bytes.Buffer
			command := Command(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
			command.SetArgs(append([]string{"explain", "-f", path}, fakeCluster(t, test.lists, "/api/v1/pods")...))
			if code := ExitCode(command.Execute(), &errOut); !strings.Contains(out.String(), test.want) || strings.Contains(out.String(), "get namespaces, of the name a") {
				t.Errorf("exit code %d, and it printed %s%s, want %q", code, out.String(), errOut.String(), test.want)
			}
		})
	}
}

func TestExplainKnowsTheManifestsOfStaticPods(t *testing.T) {
	const manifest = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a", "annotations": {"target.workload.openshift.io/management": "{"}}, "spec": {"containers": [{"name": "c"}]}}`
	for dir, want := range map[string]string{"etc/kubernetes/manifests": "skipped, invalid_target", "elsewhere": "refused, invalid_target"} {
		path := filepath.Join(t.TempDir(), dir, "p.yaml")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		command := Command(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
		command.SetArgs([]string{"explain", "--local", "-f", path})
		if code := ExitCode(command.Execute(), &errOut); code != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("in %s: exit code %d, and it printed %s%s, want %q", dir, code, out.String(), errOut.String(), want)
		}
	}
}

func TestExplainOfFiles(t *testing.T) {
	inNone := strings.Replace(fmt.Sprintf(manifests, "", "500m"), ", namespace: }", "}", 1)
	for name, test := range map[string]struct {
		input, args string
		code        int
		want        string
	}{
		"a Deployment that would be partitioned": {fmt.Sprintf(manifests, "a", "500m"), "--local -f -", 0, "partitioned (if it were created now)"},
		"a Deployment that would be skipped":     {fmt.Sprintf(manifests, "a", "400m"), "--local -f -", 1, "skipped, guaranteed (if it were created now)"},
		"a namespace that is not in the files":   {fmt.Sprintf(manifests, "b", "500m"), "--local -f -", 0, "partitioned (if it were created now)"},
		"a LimitRange in the files":              {fmt.Sprintf(manifests, "a", "500m") + minimum, "--local -f -", 1, "skipped, namespace_constrains_cpu"},
		"another namespace for what has none":    {inNone, "--local -n b -f -", 0, "Deployment b/web"},
		"another namespace than the given one":   {fmt.Sprintf(manifests, "a", "500m"), "--local -n b -f -", 2, `object "a" does not match the namespace "b"`},
		"the namespace of the files":             {inNone + minimum, "--local -n a -f -", 1, "skipped, namespace_constrains_cpu"},
		"files in which nothing has pods":        {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "--local -f -", 2, "no pod and no workload"},
		"a manifest that is none":                {"{", "--local -f -", 2, "error:"},
		"a container whose cpu is not a number":  {fmt.Sprintf(manifests, "a", "many"), "--local -f -", 2, `Name: "web"`},
		"neither objects nor files":              {"", "", 2, "name a pod or a TYPE/NAME, or give a file with -f"},
		"objects and files":                      {"", "pod -f -", 2, "not both"},
		"objects of no cluster":                  {"", "pod --local", 2, "with --local there is no cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			command := Command(genericiooptions.IOStreams{In: strings.NewReader(test.input), Out: &out, ErrOut: &errOut})
			command.SetArgs(append([]string{"explain"}, strings.Fields(test.args)...))
			stdin := os.Stdin
			defer func() { os.Stdin = stdin }()
			os.Stdin = input(t, test.input)
			if code := ExitCode(command.Execute(), &errOut); code != test.code || !strings.Contains(out.String()+errOut.String(), test.want) {
				t.Errorf("exit code %d, and it printed %s%s, want %d and %q", code, out.String(), errOut.String(), test.code, test.want)
			}
		})
	}
}

// input returns a file with a text, for the library that reads os.Stdin itself.
func input(t *testing.T, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}
