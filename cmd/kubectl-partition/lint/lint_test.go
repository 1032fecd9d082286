// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/simulate"
	"workload.openshift.io/partition"
)

// The parts of manifests.
const (
	plain = `
apiVersion: v1
kind: Namespace
metadata: {name: ours, labels: {platform: "true"}}
`
	allowed = `
apiVersion: v1
kind: Namespace
metadata:
  name: ours
  annotations:
    workload.openshift.io/allowed: management
`
	asks      = `target.workload.openshift.io/management: ""`
	asksHard  = `target.workload.openshift.io/management: '{"effect": "RequiredDuringScheduling"}'`
	burstable = `{requests: {cpu: 100m, memory: 1Mi}}`
)

// deployment returns a Deployment "app" in the namespace "ours". Its target annotation is in
// line 10 of the document, and its container's resources are in line 14.
func deployment(annotation, resources string) string {
	return `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app
  namespace: ours
spec:
  template:
    metadata:
      annotations: {` + annotation + `}
    spec:
      containers:
      - name: c
        resources: ` + resources + `
`
}

func pod(metadata, resources string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: ours, ` + metadata + `}
spec: {containers: [{name: c, resources: ` + resources + `}]}
`
}

func documents(texts ...string) string { return strings.Join(texts, "---") }

func lintText(text string, options Options) *Report {
	return Lint([]Source{{Name: "m.yaml", Data: []byte(text)}}, options)
}

// briefly returns findings as "line rule level", without notes.
func briefly(r *Report) []string {
	got := []string{}
	for _, f := range withoutNotes(r) {
		got = append(got, fmt.Sprintf("%d %s %s", f.Line, f.Rule, f.Level))
	}
	return got
}

func withoutNotes(r *Report) []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Level == Note })
}

// A namespace that allows a type may mean all of its pool. That is a note, and no finding.
func TestANamespaceWithoutAQuotaIsNoted(t *testing.T) {
	quota := func(hard string) string {
		return "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: most, namespace: ours}\nspec: {hard: {" + hard + ": 4k}}\n"
	}
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"no quota":                  {allowed, `7 it allows the type "management", and no quota here bounds requests.management.workload.openshift.io/cores`},
		"a quota on memory":         {documents(allowed, quota("memory")), `7 it allows the type "management"`},
		"a quota on cores":          {documents(allowed, quota("requests.management.workload.openshift.io/cores")), ""},
		"a quota on cores, first":   {documents(quota("requests.management.workload.openshift.io/cores"), allowed), ""},
		"a quota on another type's": {documents(allowed, quota("requests.infra.workload.openshift.io/cores")), `7 it allows the type "management"`},
		"a quota on one of two":     {documents(strings.Replace(allowed, ": management", ": management,infra", 1), quota("requests.management.workload.openshift.io/cores")), `7 it allows the type "infra"`},
		"no type":                   {plain, ""},
		"what is not a type":        {strings.Replace(allowed, ": management", ": Management", 1), ""},
	} {
		r := lintText(test.text, Options{})
		var got string
		for _, f := range r.Findings {
			if f.Level == Note {
				got += fmt.Sprintf("%d %s", f.Line, f.Message)
			}
		}
		if (got != "") != (test.want != "") || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: noted is %q, want %q", name, got, test.want)
		}
		if r.Clean() != (len(withoutNotes(r)) == 0) {
			t.Errorf("%s: clean is %v with %v", name, r.Clean(), r.Findings)
		}
	}
}

func TestFindings(t *testing.T) {
	requireManagement := Options{Require: "management"}
	for name, test := range map[string]struct {
		text    string
		options Options
		want    []string
		// message is part of the first finding's.
		message string
	}{
		"a Deployment that will be partitioned":         {text: documents(allowed, deployment(asks, burstable))},
		"an annotation that CRI-O reads for other pods": {text: documents(allowed, deployment(asks+`, irq-load-balancing.crio.io: disable`, burstable)), want: []string{"17 runtime_annotation_idle warning"}, message: "a partitioned pod is none"},
		"a workload that does not ask":                  {text: documents(plain, deployment("", burstable))},
		"a workload whose namespace is not known":       {text: deployment(asks, burstable)},
		"kinds that have nothing to do with pods":       {text: "apiVersion: example.com/v1\nkind: Deployment\nspec: {template: {metadata: {annotations: {" + asks + "}}}}\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n---\n- a list\n---\njust text\n"},
		"nothing but comments and directives":           {text: "%YAML 1.1\n---\n# nothing\n---\n...\n--- # end\n"},
		"the namespace has no annotation":               {text: documents(plain, deployment(asks, burstable)), want: []string{"14 namespace_not_annotated warning"}, message: `namespace "ours" is at m.yaml:4`},
		"the same with the hard effect":                 {text: documents(plain, deployment(asksHard, burstable)), want: []string{"14 namespace_not_annotated error"}, message: "refused"},
		"the namespace comes last":                      {text: documents(deployment(asks, burstable), plain), want: []string{"10 namespace_not_annotated warning"}},
		"the namespace allows another type":             {text: documents(strings.Replace(allowed, ": management", ": infra", 1), deployment(asks, burstable)), want: []string{"17 namespace_other_types error"}},
		"an effect that does not exist":                 {text: deployment(`target.workload.openshift.io/management: '{"effect": "Preferred"}'`, burstable), want: []string{"10 invalid_target error"}, message: "unknown effect"},
		"a value in braces without quotes":              {text: deployment(`target.workload.openshift.io/management: {effect: PreferredDuringScheduling}`, burstable), want: []string{"10 annotation_not_a_string error"}},
		"a namespace's value that is not a string":      {text: strings.Replace(allowed, ": management", ": true", 1), want: []string{"7 annotation_not_a_string error"}},
		"several types":                                 {text: deployment(asks+`, target.workload.openshift.io/infra: ""`, burstable), want: []string{"9 several_types error"}},
		"a Guaranteed pod":                              {text: deployment(asks, `{limits: {cpu: 1, memory: 1Mi}}`), want: []string{"10 guaranteed warning"}},
		"a Guaranteed pod with the hard effect":         {text: deployment(asksHard, `{limits: {cpu: 1, memory: 1Mi}}`), want: []string{"10 guaranteed error"}},
		"a pod without a request of memory":             {text: deployment(asks, `{requests: {cpu: 1}}`), want: []string{"10 qos_change warning"}},
		"the pod and its namespace are wrong":           {text: documents(plain, deployment(asks, `{requests: {cpu: 1}}`)), want: []string{"14 namespace_not_annotated warning", "14 qos_change warning"}},
		"huge pages alone":                              {text: deployment(asks, `{requests: {cpu: 1, hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 2Mi}}`+"\n      - {name: d, resources: {requests: {memory: 1Mi}}}"), want: []string{"10 hugepages_need_cpu warning"}},
		"a type that is not active":                     {text: deployment(asks, burstable), options: Options{Types: simulate.Active("infra")}, want: []string{"10 type_inactive warning"}},
		"a pod that selects Windows":                    {text: strings.Replace(deployment(asks, burstable), "      containers:", "      nodeSelector: {kubernetes.io/os: windows}\n      containers:", 1), want: []string{"10 node_does_not_count warning"}},
		"a type that an installer has decided on":       {text: deployment(asks, burstable), options: Options{Types: partition.Always(partition.ReasonDecidedAgainst)}},
		"a cluster without the plugin":                  {text: deployment(asks, burstable), options: Options{WithoutPlugin: "https://192.0.2.1"}, want: []string{"10 no_plugin warning"}, message: "kube-apiserver https://192.0.2.1 has no admission plugin"},
		"no pod asks in a cluster without the plugin":   {text: deployment("", burstable), options: Options{WithoutPlugin: "https://192.0.2.1"}},
		"a static pod in a cluster without the plugin":  {text: pod("annotations: {"+asks+"}", burstable), options: Options{WithoutPlugin: "https://192.0.2.1", StaticPods: true}},
		"a LimitRange with a minimum":                   {text: documents(deployment(asks, burstable), "\napiVersion: v1\nkind: LimitRange\nmetadata: {name: least, namespace: ours}\nspec: {limits: [{type: Container, min: {cpu: 50m}}]}\n"), want: []string{"10 namespace_constrains_cpu warning"}, message: `LimitRange "least"`},
		"a LimitRange whose defaults make Guaranteed":   {text: documents(deployment(asks, "{requests: {memory: 1Mi}, limits: {memory: 1Mi}}"), "\napiVersion: v1\nkind: LimitRange\nmetadata: {name: defaults, namespace: ours}\nspec: {limits: [{type: Container, default: {cpu: 1}}]}\n"), want: []string{"10 guaranteed warning"}},
		"a LimitRange of another namespace":             {text: documents(deployment(asks, burstable), "\napiVersion: v1\nkind: LimitRange\nmetadata: {name: least, namespace: theirs}\nspec: {limits: [{type: Container, min: {cpu: 50m}}]}\n")},
		"a quota on limits.cpu":                         {text: documents(deployment(asks, "{requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 2}}"), "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: most, namespace: ours}\nspec: {hard: {limits.cpu: 10}}\n"), want: []string{"10 namespace_constrains_cpu warning"}, message: `ResourceQuota "most"`},
		"a quota that partitioned pods escape":          {text: documents(allowed, "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: most, namespace: ours}\nspec:\n  hard:\n    requests.cpu: 10\n"), want: []string{"14 quota_without_cores warning"}, message: "requests.management.workload.openshift.io/cores"},
		"two quotas, and one of them is on cores":       {text: documents(allowed, "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: a, namespace: ours}\nspec: {hard: {requests.cpu: 10}}\n", "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: b, namespace: ours}\nspec: {hard: {requests.management.workload.openshift.io/cores: 1k}}\n")},
		"a quota on limits.cpu where a type is allowed": {text: documents(allowed, "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: a, namespace: ours}\nspec: {hard: {requests.cpu: 10, limits.cpu: 10}}\n"), want: []string{"12 quota_without_cores warning"}, message: "are not partitioned (namespace_constrains_cpu); bound requests.management.workload.openshift.io/cores instead"},
		"a quota on cores as well":                      {text: documents(allowed, "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: most, namespace: ours}\nspec: {hard: {requests.cpu: 10, requests.management.workload.openshift.io/cores: 1k}}\n")},

		"a workload that must ask":                        {text: documents(allowed, deployment("", burstable)), options: requireManagement, want: []string{"16 target_missing error"}},
		"a workload that must ask and could not":          {text: documents(plain, deployment("", "{requests: {cpu: 1}}")), options: requireManagement, want: []string{"13 target_missing error", "13 namespace_not_annotated warning", "13 qos_change warning"}},
		"a workload that must ask and asks for another":   {text: deployment(`target.workload.openshift.io/infra: ""`, burstable), options: requireManagement, want: []string{"10 target_missing error"}, message: `and asks for "infra"`},
		"a workload in a namespace that matches":          {text: documents(plain, deployment("", burstable)), options: Options{Require: "management", Selector: labels.SelectorFromSet(labels.Set{"platform": "true"})}, want: []string{"13 target_missing error", "13 namespace_not_annotated warning"}},
		"a workload in a namespace that does not":         {text: documents(allowed, deployment("", burstable)), options: Options{Require: "management", Selector: labels.SelectorFromSet(labels.Set{"platform": "true"})}},
		"an unknown namespace that matches by its name":   {text: deployment("", burstable), options: Options{Require: "management", Selector: labels.SelectorFromSet(labels.Set{"kubernetes.io/metadata.name": "ours"})}, want: []string{"9 target_missing error"}},
		"a workload in the namespace that a flag gives":   {text: documents(plain, strings.Replace(deployment(asks, burstable), "  namespace: ours\n", "", 1)), options: Options{Namespace: "ours"}, want: []string{"13 namespace_not_annotated warning"}},
		"the form of OpenShift's early drafts":            {text: deployment(`workload.openshift.io/management: '{"effect": "PreferredDuringScheduling"}'`, burstable), options: requireManagement, want: []string{"10 stale_annotation error"}, message: "pods ask with target.workload.openshift.io/management"},
		"the form of the source document's installer":     {text: deployment(`cpu.workload.openshift.io/management: ""`, burstable), want: []string{"10 stale_annotation error"}},
		"the old form next to the new one":                {text: deployment(asks+`, workload.openshift.io/management: ""`, burstable), want: []string{"10 stale_annotation error"}},
		"the old form with a value that would be refused": {text: deployment(`workload.openshift.io/management: "true"`, burstable), want: []string{"10 stale_annotation error"}, message: "its value has to change, too: must be a JSON object"},
		"the old form on a namespace":                     {text: strings.Replace(plain, "labels: {platform: \"true\"}", "annotations: {workload.openshift.io/management: ''}", 1), want: []string{"4 stale_annotation warning"}, message: "workload.openshift.io/allowed: management"},
		"CRI-O's old prefix":                              {text: deployment(`io.openshift.workload.management/c: "{}"`, burstable), want: []string{"10 unknown_annotation warning"}},
		"a word that is misspelt":                         {text: strings.Replace(allowed, "/allowed", "/allow", 1), want: []string{"7 unknown_annotation warning"}},
		"a target on the Deployment itself":               {text: strings.Replace(deployment("", burstable), "  namespace: ours\n", "  namespace: ours\n  annotations: {"+asks+"}\n", 1), want: []string{"7 misplaced_annotation warning"}, message: "spec.template.metadata.annotations"},
		"a target on the namespace":                       {text: strings.Replace(allowed, "workload.openshift.io/allowed: management", asks, 1), want: []string{"7 misplaced_annotation warning"}},
		"an allowed annotation on a template":             {text: deployment("workload.openshift.io/allowed: management", burstable), want: []string{"10 misplaced_annotation warning"}},
		"a namespace that allows what cannot be":          {text: strings.Replace(allowed, ": management", ": Management", 1), want: []string{"7 invalid_allowed warning"}},
		"a hand-written weight":                           {text: deployment(asks+`, resources.workload.openshift.io/c: '{"cpuset": "0-1"}'`, burstable), want: []string{"10 annotation_overwritten warning"}, message: `will be {"cpushares":100}`},
		"a hand-written weight of no container":           {text: deployment(asks+`, resources.workload.openshift.io/d: '{}'`, burstable), want: []string{"10 annotation_overwritten warning"}, message: "will be removed"},
		"a warning that was copied":                       {text: deployment(asks+`, workload.openshift.io/warning: copied`, burstable), want: []string{"10 annotation_overwritten warning"}},
		"a partitioned pod that was copied":               {text: deployment(`target.workload.openshift.io/management: '{"effect":"PreferredDuringScheduling"}', resources.workload.openshift.io/c: '{"cpushares":100}'`, "{requests: {management.workload.openshift.io/cores: 100, memory: 1Mi}, limits: {management.workload.openshift.io/cores: 100}}")},
		"cpu next to cores":                               {text: deployment(asks, "{requests: {cpu: 2, management.workload.openshift.io/cores: 100, memory: 1Mi}, limits: {management.workload.openshift.io/cores: 100}}"), want: []string{"14 request_lost warning"}, message: `container "c": requests.cpu of 2 will be lost`},
		"cores of two types":                              {text: deployment(asks, "{requests: {infra.workload.openshift.io/cores: 7, management.workload.openshift.io/cores: 100, memory: 1Mi}}"), want: []string{"14 request_lost warning"}},
		"cores without a target":                          {text: deployment("", "{requests: {management.workload.openshift.io/cores: 100, memory: 1Mi}}"), want: []string{"9 cores_without_target warning"}},
		"a pod, with a CronJob and a Job in a typed list": {text: "apiVersion: batch/v1\nkind: JobList\nitems:\n- metadata: {name: a}\n  spec:\n    template:\n      metadata:\n        annotations: {workload.openshift.io/management: ''}\n---\nkind: List\napiVersion: v1\nitems:\n- apiVersion: batch/v1\n  kind: CronJob\n  spec:\n    jobTemplate:\n      spec:\n        template:\n          metadata:\n            annotations: {workload.openshift.io/management: ''}\n- kind: List\n  items:\n  - kind: Pod\n    apiVersion: v1\n    metadata: {annotations: {workload.openshift.io/management: ''}}\n", want: []string{"8 stale_annotation error", "20 stale_annotation error", "25 stale_annotation error"}},
		"documents of JSON that follow one another":       {text: `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"workload.openshift.io/management":""}}} {"kind":"x"}` + "\n\n" + `{"apiVersion":"v1","kind":"Pod",` + "\n" + `"metadata":{"annotations":{"workload.openshift.io/management":"","face":"\ud83d\ude00"}}}`, want: []string{"1 stale_annotation error", "3 stale_annotation error"}},

		"a static pod needs no namespace":              {text: documents(plain, pod("annotations: {"+asks+"}", burstable)), options: Options{StaticPods: true}},
		"a static pod with the hard effect":            {text: pod("annotations: {"+asksHard+"}", "{requests: {cpu: 1}}"), options: Options{StaticPods: true}, want: []string{"4 static_pod_hard_effect warning", "4 qos_change warning"}, message: "never refused"},
		"a static pod that asks for several types":     {text: pod(`annotations: {`+asks+`, target.workload.openshift.io/infra: ""}`, burstable), options: Options{StaticPods: true}, want: []string{"4 several_types warning"}},
		"a Deployment is not a static pod":             {text: documents(plain, deployment(asks, burstable)), options: Options{StaticPods: true}, want: []string{"14 namespace_not_annotated warning"}},
		"an HPA by utilisation":                        {text: documents(deployment(asks, burstable), hpa("autoscaling/v2", "metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]")), want: []string{"21 hpa_cpu_utilization error"}},
		"an HPA by utilisation of one container":       {text: documents(deployment(asks, burstable), hpa("autoscaling/v2", "metrics: [{type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization, averageUtilization: 50}}}]")), want: []string{"21 hpa_cpu_utilization error"}},
		"an HPA of the first version":                  {text: documents(deployment(asks, burstable), hpa("autoscaling/v1", "targetCPUUtilizationPercentage: 50")), want: []string{"21 hpa_cpu_utilization error"}},
		"an HPA without metrics":                       {text: documents(deployment(asks, burstable), hpa("autoscaling/v2", "maxReplicas: 3")), want: []string{"19 hpa_cpu_utilization error"}},
		"an HPA by an average value":                   {text: documents(deployment(asks, burstable), hpa("autoscaling/v2", "metrics: [{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 100m}}}]"))},
		"an HPA by memory":                             {text: documents(deployment(asks, burstable), hpa("autoscaling/v2", "metrics: [{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 50}}}]"))},
		"an HPA of an ordinary workload":               {text: documents(deployment("", burstable), hpa("autoscaling/v1", "targetCPUUtilizationPercentage: 50"))},
		"a ScaledObject by utilisation":                {text: documents(deployment(asks, burstable), scaledObject("{type: cpu, metricType: Utilization, metadata: {value: '60'}}")), want: []string{"22 keda_cpu_utilization error"}, message: "which the partitioned pods of Deployment ours/app do not have"},
		"a ScaledObject of older versions":             {text: documents(deployment(asks, burstable), scaledObject("{type: memory, metricType: Utilization, metadata: {value: '60'}}", "{type: cpu, metadata: {type: Utilization, value: '60'}}")), want: []string{"23 keda_cpu_utilization error"}},
		"a ScaledObject of one container":              {text: documents(deployment(asks, burstable), scaledObject("{type: cpu, metricType: Utilization, metadata: {value: '60', containerName: c}}")), want: []string{"22 keda_cpu_utilization error"}},
		"a ScaledObject that names the kind":           {text: documents(strings.NewReplacer("Deployment", "StatefulSet").Replace(deployment(asks, burstable)), strings.Replace(scaledObject("{type: cpu, metricType: Utilization, metadata: {value: '60'}}"), "{name: app}", "{apiVersion: apps/v1, kind: StatefulSet, name: app}", 1)), want: []string{"22 keda_cpu_utilization error"}},
		"a ScaledObject by an average value":           {text: documents(deployment(asks, burstable), scaledObject("{type: cpu, metricType: AverageValue, metadata: {value: 100m}}"))},
		"a ScaledObject by a queue":                    {text: documents(deployment(asks, burstable), scaledObject("{type: rabbitmq, metadata: {queueName: q, value: '5'}}"))},
		"a ScaledObject of an ordinary workload":       {text: documents(deployment("", burstable), scaledObject("{type: cpu, metricType: Utilization, metadata: {value: '60'}}"))},
		"a pod that asks for more than its pool":       {text: deployment(asks, "{requests: {cpu: 4001m, memory: 1Mi}}"), options: Options{PoolCPUs: map[string]int{"management": 4}}, want: []string{"10 exceeds_pool warning"}, message: `its pods request 4001m of type "management", and the pool has 4 CPUs`},
		"a pod that asks for all of its pool":          {text: deployment(asks, "{requests: {cpu: 4, memory: 1Mi}}"), options: Options{PoolCPUs: map[string]int{"management": 4}}},
		"an init container that asks for more":         {text: deployment(asks, burstable+"\n      initContainers: [{name: i, resources: {requests: {cpu: 5, memory: 1Mi}}}]"), options: Options{PoolCPUs: map[string]int{"management": 4}}, want: []string{"10 exceeds_pool warning"}},
		"a pod of a pool of which nothing is known":    {text: deployment(asks, "{requests: {cpu: 400, memory: 1Mi}}"), options: Options{PoolCPUs: map[string]int{"infra": 4}}},
		"an ordinary pod that asks for more":           {text: deployment("", "{requests: {cpu: 400, memory: 1Mi}}"), options: Options{PoolCPUs: map[string]int{"management": 4}}},
		"a CPU driver's file reserves the pools":       {text: driverFile("reservedCPUs: 0,1"), options: Options{Pools: cpuset.New(0, 1)}},
		"a CPU driver's file reserves a part of them":  {text: driverFile("reservedCPUs: \"0\""), options: Options{Pools: cpuset.New(0, 1)}, want: []string{"5 driver_reserves_others error"}, message: `reserves the CPUs "0", and the pools have 0-1: it gives CPUs of the pools to pods`},
		"a CPU driver's file reserves more":            {text: driverFile("reservedCPUs: 0-3"), options: Options{Pools: cpuset.New(0, 1)}, want: []string{"5 driver_reserves_others error"}, message: "it leaves the others unused"},
		"a CPU driver's file reserves none":            {text: driverFile("groupBy: socket"), options: Options{Pools: cpuset.New(0, 1)}, want: []string{"5 driver_reserves_others error"}},
		"a CPU driver's file, and no known pools":      {text: driverFile("groupBy: socket")},
		"a file of something else":                     {text: strings.Replace(driverFile("groupBy: socket"), "cpuDeviceMode", "mode", 1), options: Options{Pools: cpuset.New(0, 1)}},
		"a CPU driver's flag reserves the pools":       {text: driver("--reserved-cpus=0-1"), options: Options{Pools: cpuset.New(0, 1)}},
		"a CPU driver's flag, in two words":            {text: driver("--reserved-cpus, 0-1"), options: Options{Pools: cpuset.New(0, 1)}},
		"a CPU driver's flag reserves others":          {text: driver("--reserved-cpus=2-3"), options: Options{Pools: cpuset.New(0, 1)}, want: []string{"8 driver_reserves_others error"}},
		"a CPU driver's flag wins over its file":       {text: driver("--reserved-cpus=2-3, --config=/etc/dracpu/config.yaml"), options: Options{Pools: cpuset.New(0, 1)}, want: []string{"8 driver_reserves_others error"}},
		"a CPU driver has a file":                      {text: driver("--config=/etc/dracpu/config.yaml"), options: Options{Pools: cpuset.New(0, 1)}},
		"a CPU driver has neither":                     {text: driver("--v=4"), options: Options{Pools: cpuset.New(0, 1)}, want: []string{"8 driver_reserves_others error"}},
		"isolcpus has CPUs of the pools":               {text: machineConfig("nosmt", "isolcpus=1-3"), options: Options{Pools: cpuset.New(0, 1)}, want: []string{"7 pool_isolated warning"}, message: "CPU 1 of the pools is in isolcpus"},
		"isolcpus has the flag domain":                 {text: machineConfig("isolcpus=managed_irq,domain,0-3"), options: Options{Pools: cpuset.New(0, 1)}, want: []string{"6 pool_isolated warning"}},
		"isolcpus keeps interrupts away alone":         {text: machineConfig("isolcpus=managed_irq,0-3"), options: Options{Pools: cpuset.New(0, 1)}},
		"isolcpus has other CPUs":                      {text: machineConfig("isolcpus=2-3"), options: Options{Pools: cpuset.New(0, 1)}},
		"isolcpus has a pool of one CPU":               {text: machineConfig("isolcpus=0-3"), options: Options{Pools: cpuset.New(0)}},
		"isolcpus in a form of the kernel's own":       {text: machineConfig("isolcpus=0-15:2/4"), options: Options{Pools: cpuset.New(0, 1)}},
		"isolcpus, and no known pools":                 {text: machineConfig("isolcpus=0-3")},
		"a profile that isolates CPUs of the pools":    {text: performanceProfile("{isolated: 1-3, reserved: '0', balanceIsolated: false}"), options: Options{Pools: cpuset.New(0, 1)}, want: []string{"5 pool_isolated warning"}},
		"a profile whose isolated CPUs are balanced":   {text: performanceProfile("{isolated: 1-3, reserved: '0'}"), options: Options{Pools: cpuset.New(0, 1)}},
		"a profile that isolates other CPUs":           {text: performanceProfile("{isolated: 2-3, reserved: 0-1, balanceIsolated: false}"), options: Options{Pools: cpuset.New(0, 1)}},
		"a VPA that controls everything":               {text: documents(deployment(asks, burstable), vpa("updatePolicy: {updateMode: Auto}")), want: []string{"19 vpa_cpu error"}},
		"a VPA that evicts nothing":                    {text: documents(deployment(asks, burstable), vpa("updatePolicy: {updateMode: Initial}")), want: []string{"19 vpa_cpu warning"}, message: "so what it writes at their creation changes nothing"},
		"a VPA that controls the cpu of one container": {text: documents(deployment(asks, burstable), vpa("resourcePolicy: {containerPolicies: [{containerName: '*', controlledResources: [memory]}, {containerName: c}]}")), want: []string{"21 vpa_cpu error"}},
		"a VPA that controls memory":                   {text: documents(deployment(asks, burstable), vpa("resourcePolicy: {containerPolicies: [{containerName: '*', controlledResources: [memory]}]}"))},
		"a VPA that leaves all containers alone":       {text: documents(deployment(asks, burstable), vpa("resourcePolicy: {containerPolicies: [{containerName: '*', mode: 'Off'}]}"))},
		"a VPA that only recommends":                   {text: documents(deployment(asks, burstable), vpa("updatePolicy: {updateMode: 'Off'}"))},
	} {
		t.Run(name, func(t *testing.T) {
			r := lintText(test.text, test.options)
			if len(r.Problems) > 0 {
				t.Errorf("problems: %v", r.Problems)
			}
			if got := briefly(r); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("got %q, want %q", got, test.want)
			} else if found := withoutNotes(r); len(found) > 0 && !strings.Contains(found[0].Message, test.message) {
				t.Errorf("the message is %q, want %q in it", found[0].Message, test.message)
			}
			for _, f := range r.Findings {
				if !knownRule(f.Rule) {
					t.Errorf("the catalogue lacks %s", f.Rule)
				}
			}
		})
	}
}

func scaledObject(triggers ...string) string {
	return "\napiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: s, namespace: ours}\nspec:\n  scaleTargetRef: {name: app}\n  triggers:\n  - " + strings.Join(triggers, "\n  - ") + "\n"
}

func hpa(version, spec string) string {
	return "\napiVersion: " + version + "\nkind: HorizontalPodAutoscaler\nmetadata: {name: h, namespace: ours}\nspec:\n  scaleTargetRef: {kind: Deployment, name: app}\n  " + spec + "\n"
}

func vpa(spec string) string {
	return "\napiVersion: autoscaling.k8s.io/v1\nkind: VerticalPodAutoscaler\nmetadata: {name: v, namespace: ours}\nspec:\n  targetRef: {kind: Deployment, name: app}\n  " + spec + "\n"
}

func TestFilesOfTheKubeletsDirectoryAreStaticPods(t *testing.T) {
	text := documents(plain, pod("annotations: {"+asks+"}", burstable))
	for file, want := range map[string]int{"etc/kubernetes/manifests/a.yaml": 0, "/etc/kubernetes/manifests/a.yaml": 0, "node/etc/kubernetes/manifests/a.yaml": 0, "manifests/a.yaml": 1, "fetc/kubernetes/manifests/a.yaml": 1} {
		if r := Lint([]Source{{Name: file, Data: []byte(text)}}, Options{}); len(r.Findings) != want {
			t.Errorf("%s: got %v, want %d findings", file, briefly(r), want)
		}
	}
	// In the directory, a name is enough.
	dir := filepath.Join(t.TempDir(), "etc/kubernetes/manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.WriteFile("a.yaml", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]int{"a.yaml": 0, "./a.yaml": 0, "../manifests/a.yaml": 0, Stdin: 1} {
		if r := Lint([]Source{{Name: file, Data: []byte(text)}}, Options{}); len(r.Findings) != want {
			t.Errorf("%s in the directory: got %v, want %d findings", file, briefly(r), want)
		}
	}
}

func TestObjectsOfACluster(t *testing.T) {
	object := func(text string) Source { return Source{Data: []byte(text)} }
	r := Lint([]Source{
		object(allowed),
		object(deployment(asks, `{requests: {cpu: 1}}`)),
		object(pod(`ownerReferences: [{kind: ReplicaSet, controller: true, name: r, uid: u, apiVersion: apps/v1}], annotations: {workload.openshift.io/management: ""}`, burstable)),
		object(pod(`ownerReferences: [{kind: StatefulSet, controller: true, name: r, uid: u, apiVersion: apps.kruise.io/v1}], annotations: {workload.openshift.io/management: ""}`, burstable)),
		object(pod(`annotations: {workload.openshift.io/warning: 'workload type "management" ignored: no pool of this type is active here'}`, burstable)),
		object(pod(`annotations: {workload.openshift.io/warning: of its author, kubernetes.io/config.mirror: x, `+asksHard+`}`, burstable)),
	}, Options{})
	want := []string{"0 qos_change warning", "0 stale_annotation error", "0 type_inactive warning", "0 static_pod_hard_effect warning"}
	if got := briefly(r); !slices.Equal(got, want) || len(r.Problems) > 0 {
		t.Errorf("got %q, %v, want %q", got, r.Problems, want)
	}
	if r.Findings[0].File != "" || r.Workloads != 4 || r.Asking != 4 {
		t.Errorf("got %+v", r)
	}
}

// kubectl get pods -o yaml has pods without what has made them; kubectl get all has both.
func TestFilesMayHaveOnlyPodsThatAWorkloadHasMade(t *testing.T) {
	owned := pod(`ownerReferences: [{kind: ReplicaSet, controller: true, name: r, uid: u, apiVersion: apps/v1}], annotations: {workload.openshift.io/management: ""}`, burstable)
	owner := strings.NewReplacer("Deployment", "ReplicaSet", "name: app", "name: app\n  uid: u").Replace(deployment(`workload.openshift.io/management: ""`, burstable))
	for name, test := range map[string]struct {
		text string
		want int
	}{
		"a pod alone":                 {owned, 1},
		"a pod, and what has made it": {owned + "\n---\n" + owner, 1},
		"a pod, and another workload": {owned + "\n---\n" + strings.Replace(owner, "uid: u", "uid: v", 1), 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := Lint([]Source{{Name: Stdin, Data: []byte(test.text)}}, Options{})
			if got := briefly(r); len(got) != test.want || r.Workloads != test.want || len(r.Problems) > 0 {
				t.Errorf("got %q, %v, and %d workloads, want %d", got, r.Problems, r.Workloads, test.want)
			}
		})
	}
}

// A kubelet partitions static pods by its own pools, whatever is active in the cluster.
func TestMirrorPodsAreJudgedByTheirNodes(t *testing.T) {
	mirror := func(annotation, resources, node string) string {
		return strings.Replace(pod("annotations: {kubernetes.io/config.mirror: x, "+annotation+"}", resources), "spec: {", "spec: {nodeName: "+node+", ", 1)
	}
	const cores = "{requests: {management.workload.openshift.io/cores: 100, memory: 1Mi}, limits: {management.workload.openshift.io/cores: 100}}"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"a partitioned pod of a node that is not known":     {mirror(`target.workload.openshift.io/management: '{"effect":"PreferredDuringScheduling"}', resources.workload.openshift.io/c: '{"cpushares":100}'`, cores, "other"), nil},
		"an ordinary pod of a node that offers the type":    {mirror(asks, "{requests: {cpu: 1}}", "offers"), []string{"0 qos_change warning"}},
		"an ordinary pod of a node that offers another one": {mirror(asks, burstable, "lacks"), []string{"0 type_inactive warning"}},
		"an ordinary pod of a node that is not known":       {mirror(asks, burstable, "other"), []string{"0 type_inactive warning"}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := map[string]simulate.Types{"offers": simulate.Active("management"), "lacks": simulate.Active("infra")}
			r := Lint([]Source{{Data: []byte(test.text)}}, Options{Types: simulate.Active(), Nodes: nodes})
			if got := briefly(r); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 || len(r.Problems) > 0 {
				t.Errorf("got %q, %v, want %q", got, r.Problems, test.want)
			}
		})
	}
}

func TestABrokenDocumentDoesNotHideTheOthers(t *testing.T) {
	broken := "\napiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n   namespace: y\n"
	r := lintText(documents(plain, broken, deployment(asks, burstable), deployment("", "{requests: {cpu: 1x}}"), "\nkind: Pod\napiVersion: v1\nspec: {containers: 7}\n"), Options{})
	want := []string{
		"m.yaml:10: mapping values are not allowed in this context",
		`m.yaml:38: Deployment ours/app: spec.template.spec.containers.0.resources.requests.cpu: "1x" is not a quantity`,
		"m.yaml:40: Pod (no name): json: cannot unmarshal number into Go struct field PodSpec.spec.containers",
	}
	if got := briefly(r); !slices.Equal(got, []string{"20 namespace_not_annotated warning"}) {
		t.Errorf("got %q", got)
	}
	if len(r.Problems) != len(want) {
		t.Fatalf("got %v, want %v", r.Problems, want)
	}
	for i := range want {
		if got := r.Problems[i].Error(); !strings.HasPrefix(got, want[i]) {
			t.Errorf("got %q, want %q", got, want[i])
		}
	}
}

// A chart has values where there are none yet. Once a file is enough, and what of it happens to be YAML is not judged.
func TestATemplateIsSaidToBeOneOnce(t *testing.T) {
	const helm = `{{- if .Values.enabled }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
  labels: {{- include "labels" . | nindent 4 }}
---
apiVersion: v1
kind: Pod
metadata: {name: a, annotations: {workload.openshift.io/management: ""}}
---
kind: {{ .Values.kind }}
---
name: {{ .Values.name }}
{{- end }}
`
	quoted := deployment(asks, "{requests: {cpu: \"{{ .Values.cpu }}\", memory: \"{{ .Values.memory }}\"}}") + "---" + deployment(asks, "{requests: {cpu: \"{{ .Values.cpu }}\"}}")
	for name, test := range map[string]struct {
		text     string
		line     int
		findings []string
	}{
		"a chart's Deployment":                    {helm, 1, []string{}},
		"values in quotes, which are not amounts": {quoted, 14, []string{}},
		"an action in a text":                     {documents(plain, strings.Replace(deployment(asks, burstable), "name: c\n", "name: c\n        args: [\"{{ .Name }}\"]\n", 1)), 0, []string{"14 namespace_not_annotated warning"}},
	} {
		r := lintText(test.text, Options{})
		want := []Problem{{File: "m.yaml", Line: test.line, Message: notRendered}}
		if test.line == 0 {
			want = nil
		}
		if got := briefly(r); !slices.Equal(r.Problems, want) || !slices.Equal(got, test.findings) {
			t.Errorf("%s: problems are %v, findings %q, want %v and %q", name, r.Problems, got, want, test.findings)
		}
	}
}

func TestUnknownNamespacesAreNamed(t *testing.T) {
	r := lintText(documents(deployment(asks, burstable), deployment(asks, burstable), strings.Replace(deployment("", burstable), "ours", "theirs", 1)), Options{})
	if !slices.Equal(r.UnknownNamespaces, []string{"ours"}) || r.Workloads != 3 || r.Asking != 2 {
		t.Errorf("got %+v", r)
	}
}

func TestCasesOfTheCoreHaveRules(t *testing.T) {
	for _, rule := range partition.Rules() {
		if knownRule(string(rule.Reason)) == (rule.Reason == partition.ReasonChangedLater) {
			t.Errorf("the catalogue and the core's table differ in %s", rule.Reason)
		}
	}
}

// driverFile is the ConfigMap of dra-driver-cpu's chart, with a setting.
func driverFile(setting string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dra-driver-cpu-config}\ndata:\n  config.yaml: |\n    cpuDeviceMode: grouped\n    " + setting + "\n"
}

// driver is its DaemonSet, with flags.
func driver(flags string) string {
	return "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: dra-driver-cpu}\nspec:\n  template:\n    spec:\n      containers:\n      - {name: dracpu, args: [/dracpu, --v=4, " + flags + "]}\n"
}

func machineConfig(arguments ...string) string {
	return "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: a}\nspec:\n  kernelArguments:\n  - " + strings.Join(arguments, "\n  - ") + "\n"
}

func performanceProfile(cpu string) string {
	return "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: a}\nspec:\n  cpu: " + cpu + "\n"
}

func TestTheDocumentationHasAllRules(t *testing.T) {
	page, err := os.ReadFile("../../../docs/user/kubectl-partition-lint.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range ownRules {
		fixable := ""
		if rule.Fixable {
			fixable = "yes"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s | %s |\n", rule.ID, rule.Condition, rule.Remedy, fixable); !strings.Contains(string(page), row) {
			t.Errorf("the page lacks the row\n%s", row)
		}
	}
}
