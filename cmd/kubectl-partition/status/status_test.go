// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// pod returns a pod of one container that asks for management, after admission with a gate.
func pod(name string, gate partition.Gate) *v1.Pod {
	p := podtest.Pod(map[string]string{"target.workload.openshift.io/management": ""}, podtest.Container("c", "cpu=400m memory=1Gi", ""))
	p.Namespace, p.Name, p.Spec.NodeName = "a", name, "n1"
	if gate != nil {
		d := partition.Mutate(partition.V1(p), partition.Policy{Gate: gate})
		if d.Outcome == partition.Skipped {
			p.Annotations[partition.WarningAnnotation] = d.Message()
		}
	}
	return p
}

func TestPodsAreCountedByWhatBecameOfThem(t *testing.T) {
	with := func(p *v1.Pod, change func(*v1.Pod)) *v1.Pod { change(p); return p }
	partitioned := func(change func(*v1.Pod)) *v1.Pod { return with(pod("p", partition.AnyType), change) }
	node := func(pods int, millicores int64) []Node {
		n := Node{Name: "n1", Type: "management", Pods: pods, RequestedMillicores: millicores}
		if millicores > 0 {
			n.Largest = &Largest{Namespace: "a", Name: "p", Millicores: millicores}
		}
		return []Node{n}
	}
	for name, test := range map[string]struct {
		pod       *v1.Pod
		nodes     []Node
		pending   int
		skipped   partition.Reason
		undecided bool
	}{
		"a partitioned pod requests cores of its node": {partitioned(func(*v1.Pod) {}), node(1, 400), 0, "", false},
		"an init container that requests more counts instead": {partitioned(func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{*p.Spec.Containers[0].DeepCopy()}
			p.Spec.InitContainers[0].Resources.Requests["management.workload.openshift.io/cores"] = resource.MustParse("900")
		}), node(1, 900), 0, "", false},
		"a partitioned pod without a node is pending": {partitioned(func(p *v1.Pod) { p.Spec.NodeName = "" }), nil, 1, "", false},
		"a pod that has ended requests nothing":       {partitioned(func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), nil, 0, "", false},
		"a skipped pod has a reason":                  {pod("p", partition.Always(partition.ReasonNamespaceNotAnnotated)), nil, 0, partition.ReasonNamespaceNotAnnotated, false},
		"a mirror pod that got its cpu back is in its pool": {partitioned(func(p *v1.Pod) {
			p.Annotations[v1.MirrorPodAnnotationKey] = "1"
			partition.RestoreCPU(partition.V1(p))
		}), node(1, 0), 0, "", false},
		"a mirror pod that was not partitioned is undecided": {with(pod("p", nil), func(p *v1.Pod) { p.Annotations[v1.MirrorPodAnnotationKey] = "1" }), nil, 0, "", true},
		"a skipped pod that has ended is not counted":        {with(pod("p", partition.Always(partition.ReasonNamespaceNotAnnotated)), func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), nil, 0, "", false},
		"an undecided pod that has ended is not counted":     {with(pod("p", nil), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), nil, 0, "", false},
		"a static pod with an invalid target is skipped": {with(pod("p", nil), func(p *v1.Pod) {
			p.Annotations = map[string]string{partition.WarningAnnotation: "workload type ignored: metadata.annotations: it is wrong"}
		}), nil, 0, partition.ReasonInvalidTarget, false},
		"a pod that asks and has no warning is undecided": {pod("p", nil), nil, 0, "", true},
		"a pod with an invalid target is undecided":       {with(pod("p", nil), func(p *v1.Pod) { p.Annotations["target.workload.openshift.io/other"] = "" }), nil, 0, "", true},
		"a pod with cores and no target is undecided":     {partitioned(func(p *v1.Pod) { p.Annotations = nil }), nil, 0, "", true},
		"a warning next to cores is forged": {partitioned(func(p *v1.Pod) {
			p.Annotations = map[string]string{partition.WarningAnnotation: pod("q", partition.Always(partition.ReasonNamespaceNotAnnotated)).Annotations[partition.WarningAnnotation]}
		}), nil, 0, "", true},
		"a copy that got its cpu back never asked": {with(pod("p", nil), func(p *v1.Pod) {
			p.Annotations = map[string]string{partition.WarningAnnotation: "cores of a workload type were turned back"}
		}), nil, 0, "", false},
		"a pod that does not ask is not counted": {with(pod("p", nil), func(p *v1.Pod) { p.Annotations = nil }), nil, 0, "", false},
	} {
		r := newReader()
		r.addPod(test.pod)
		s := r.status(nil)
		if len(s.Nodes)+len(test.nodes) > 0 && !reflect.DeepEqual(s.Nodes, test.nodes) {
			t.Errorf("%s: nodes are %+v, want %+v", name, s.Nodes, test.nodes)
		}
		pending := 0
		for _, of := range s.Types {
			pending += of.Unscheduled
		}
		if pending != test.pending {
			t.Errorf("%s: %d are pending, want %d", name, pending, test.pending)
		}
		var reason partition.Reason
		for _, group := range s.Skipped {
			reason = group.Reason
		}
		if reason != test.skipped {
			t.Errorf("%s: it is skipped for %q, want %q", name, reason, test.skipped)
		}
		if undecided := s.Undecided != nil; undecided != test.undecided {
			t.Errorf("%s: undecided is %v, want %v", name, undecided, test.undecided)
		}
	}
}

// Nothing but what namespaces allow, and what the kubelet believes (partition.PartitionedType), decides.
func TestPodsWithoutARightAreNamed(t *testing.T) {
	const forged = `{"cpushares":16000}`
	cores := func(workloadType string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceName(workloadType + ".workload.openshift.io/cores"): resource.MustParse("16000"), v1.ResourceMemory: resource.MustParse("16Mi")}
	}
	bare := func(annotations map[string]string, requests v1.ResourceList) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", Annotations: annotations},
			Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: requests}}}}}
	}
	with := func(p *v1.Pod, change func(*v1.Pod)) *v1.Pod { change(p); return p }
	target := map[string]string{"target.workload.openshift.io/management": `{"effect":"PreferredDuringScheduling"}`}
	planted := func() *v1.Pod {
		return bare(map[string]string{"target.workload.openshift.io/management": `{"effect":"PreferredDuringScheduling"}`, "resources.workload.openshift.io/c": forged}, cores("management"))
	}
	none := map[string]string{}
	notAllowed := func(workloadType string, partitioned bool) []PodNotAllowed {
		return []PodNotAllowed{{Namespace: "a", Name: "p", Node: "n1", Type: workloadType, Partitioned: partitioned}}
	}
	for name, test := range map[string]struct {
		pod       *v1.Pod
		allowed   map[string]string
		want      []PodNotAllowed
		undecided bool
	}{
		"a planted pod in a namespace without the annotation":                                    {planted(), none, notAllowed("management", true), false},
		"in a namespace that allows another type":                                                {planted(), map[string]string{"a": "infra"}, notAllowed("management", true), false},
		"in a namespace that allows nothing":                                                     {planted(), map[string]string{"a": ""}, notAllowed("management", true), false},
		"in a namespace that allows the type":                                                    {planted(), map[string]string{"a": "infra, management"}, nil, false},
		"where another namespace allows the type":                                                {planted(), map[string]string{"b": "management"}, notAllowed("management", true), false},
		"where it is not known what namespaces allow":                                            {planted(), nil, nil, false},
		"a BestEffort one":                                                                       {bare(map[string]string{"target.workload.openshift.io/management": "", "resources.workload.openshift.io/c": forged}, nil), none, notAllowed("management", true), false},
		"one that OpenShift's kubelet would have made, without an annotation for its containers": {bare(target, cores("management")), none, notAllowed("management", true), false},
		"one of a type that no pod can ask for":                                                  {bare(map[string]string{"target.workload.openshift.io/A b": "", "resources.workload.openshift.io/c": forged}, nil), none, notAllowed("A b", true), false},
		"one whose effect does not exist":                                                        {with(planted(), func(p *v1.Pod) { p.Annotations["target.workload.openshift.io/management"] = "no" }), none, notAllowed("management", true), false},
		"one that pretends to have been skipped":                                                 {with(planted(), func(p *v1.Pod) { p.Annotations[partition.WarningAnnotation] = "workload type ignored: no" }), none, notAllowed("management", true), false},
		"one that asks and has its cpu":                                                          {bare(target, v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}), none, notAllowed("management", false), false},
		"the same where the namespace allows the type":                                           {bare(target, v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}), map[string]string{"a": "management"}, nil, true},
		"one with cores and no target":                                                           {bare(nil, cores("infra")), none, notAllowed("infra", false), false},
		"one with cores of another type than its allowed target": {with(bare(target, cores("management")), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "i", Resources: v1.ResourceRequirements{Limits: cores("infra")}}}
		}), map[string]string{"a": "management"}, notAllowed("infra", false), false},
		"one that asks for two types":                      {with(planted(), func(p *v1.Pod) { p.Annotations["target.workload.openshift.io/infra"] = "" }), map[string]string{"a": "management"}, notAllowed("infra", false), false},
		"one that is not scheduled":                        {with(planted(), func(p *v1.Pod) { p.Spec.NodeName = "" }), none, []PodNotAllowed{{Namespace: "a", Name: "p", Type: "management", Partitioned: true}}, false},
		"one that has ended":                               {with(planted(), func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), none, nil, false},
		"a mirror pod, whose manifest is root's":           {with(planted(), func(p *v1.Pod) { p.Annotations[v1.MirrorPodAnnotationKey] = "1" }), none, nil, false},
		"an annotation of the source changes nothing":      {with(planted(), func(p *v1.Pod) { p.Annotations["kubernetes.io/config.source"] = "file" }), none, notAllowed("management", true), false},
		"a pod that was skipped has nothing without right": {pod("p", partition.Always(partition.ReasonNamespaceNotAnnotated)), none, nil, false},
	} {
		r := newReader()
		r.allowed = test.allowed
		r.addPod(test.pod)
		if !reflect.DeepEqual(r.notAllowed, test.want) || (r.undecided.Count > 0) != test.undecided {
			t.Errorf("%s: notAllowed are %+v, undecided %d, want %+v and %v", name, r.notAllowed, r.undecided.Count, test.want, test.undecided)
		}
		if s := r.status(nil); s.Found() != (len(test.want) > 0 || test.undecided || len(s.Skipped) > 0) {
			t.Errorf("%s: found is %v", name, s.Found())
		}
	}
}

func TestWhatANamespaceAllowsIsReadAgain(t *testing.T) {
	namespace := func(name, allowed string) *v1.Namespace {
		return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{partition.AllowedAnnotation: allowed}}}
	}
	quota := func(namespace string, name v1.ResourceName) *v1.ResourceQuota {
		return &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "q"}, Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{name: resource.MustParse("4")}}}
	}
	r := newReader()
	r.client = fake.NewClientset(namespace("late", "management"), namespace("bounded", "management"), namespace("other", "management, management,A b"),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}},
		quota("late", "requests.cpu"), quota("bounded", "requests.management.workload.openshift.io/cores"), quota("tenant", "requests.cpu"))
	planted := func(namespace, name string, partitioned bool) PodNotAllowed {
		return PodNotAllowed{Namespace: namespace, Name: name, Type: "management", Partitioned: partitioned}
	}
	r.allowed = map[string]string{}
	r.notAllowed = []PodNotAllowed{planted("tenant", "a", false), planted("tenant", "c", true), planted("late", "a", true), planted("tenant", "b", true)}
	if err := r.judgeAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []PodNotAllowed{planted("tenant", "b", true), planted("tenant", "c", true), planted("tenant", "a", false)}; !slices.Equal(r.notAllowed, want) {
		t.Errorf("notAllowed are %+v, want %+v", r.notAllowed, want)
	}
	if err := r.readQuotas(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []Unbounded{{"late", "management"}, {"other", "management"}}; !slices.Equal(r.unbounded, want) || len(r.unknown) > 0 {
		t.Errorf("unbounded are %+v, want %+v; unknown is %+v", r.unbounded, want, r.unknown)
	}
}

func TestAPodThatRequestsMoreThanItsPoolIsFound(t *testing.T) {
	largest := &Largest{"a", "p", 2500}
	for name, test := range map[string]struct {
		node             Node
		exceeds, certain bool
	}{
		"a pool of two CPUs":                {Node{Largest: largest, PoolCPUs: ptr.To(2), ReservedMillicores: 4000}, true, true},
		"a pool of three CPUs":              {Node{Largest: largest, PoolCPUs: ptr.To(3), ReservedMillicores: 2000}, false, true},
		"a type that is not confined":       {Node{Largest: largest, PoolCPUs: ptr.To(0), ReservedMillicores: 2000}, false, true},
		"an unknown pool of a small node":   {Node{Largest: largest, ReservedMillicores: 2000}, true, false},
		"an unknown pool of a larger node":  {Node{Largest: largest, ReservedMillicores: 2500}, false, false},
		"a node that reserves nothing":      {Node{Largest: largest}, false, false},
		"a node without a pod that asks it": {Node{PoolCPUs: ptr.To(2)}, false, false},
	} {
		if exceeds, certain := test.node.Exceeds(); exceeds != test.exceeds || certain != test.certain {
			t.Errorf("%s: %v, certain %v, want %v and %v", name, exceeds, certain, test.exceeds, test.certain)
		}
		if found := (&Status{Nodes: []Node{test.node}}).Found(); found != (test.exceeds && test.certain) {
			t.Errorf("%s: found is %v", name, found)
		}
	}
	r := newReader()
	for name, cpu := range map[string]string{"small": "100m", "large": "3", "middle": "1"} {
		p := podtest.Pod(map[string]string{"target.workload.openshift.io/management": ""}, podtest.Container("c", "cpu="+cpu+" memory=1Gi", ""))
		p.Namespace, p.Name, p.Spec.NodeName = "a", name, "n1"
		partition.Mutate(partition.V1(p), partition.Policy{Gate: partition.AnyType})
		r.addPod(p)
	}
	if got, want := r.nodes[nodeType{"n1", "management"}].Largest, (&Largest{"a", "large", 3000}); !reflect.DeepEqual(got, want) {
		t.Errorf("the largest is %+v, want %+v", got, want)
	}
}

func TestTheNewestPodsAreNamed(t *testing.T) {
	var pods Pods
	for _, minute := range []int{3, 1, 14, 2, 7, 5, 9, 11, 4, 8, 6, 10, 13, 12} {
		pods.add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(minute), CreationTimestamp: metav1.NewTime(time.Unix(int64(60*minute), 0))}}, "")
	}
	var names []string
	for _, named := range pods.Newest {
		names = append(names, named.Name)
	}
	if want := []string{"14", "13", "12", "11", "10", "9", "8", "7", "6", "5"}; pods.Count != 14 || !slices.Equal(names, want) {
		t.Errorf("%d pods, of which %v are named, want 14 and %v", pods.Count, names, want)
	}
}

func TestOnlyPodsThatNamePartitioningAreDecoded(t *testing.T) {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{Continue: "next", ResourceVersion: "7"},
		Items: []v1.Pod{*pod("asks", nil), {ObjectMeta: metav1.ObjectMeta{Name: "ordinary"}}, *pod("partitioned", partition.AnyType)}}
	list.Items[2].Status = v1.PodStatus{Phase: v1.PodSucceeded, Message: "not needed"}
	var body bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(list, &body); err != nil {
		t.Fatal(err)
	}
	got, err := decodePods(body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	list.Items[2].Status.Message = ""
	if want := []v1.Pod{list.Items[0], list.Items[2]}; got.Continue != "next" || !apiequality.Semantic.DeepEqual(got.Items, want) {
		t.Errorf("decoded %d pods, and more at %q: %+v", len(got.Items), got.Continue, got.Items)
	}
	for name, broken := range map[string][]byte{"JSON": []byte(`{"kind":"PodList"}`), "nothing": nil, "half a message": body.Bytes()[:body.Len()/2]} {
		if _, err := decodePods(broken); err == nil {
			t.Errorf("%s is decoded", name)
		}
	}
}

func FuzzDecodePods(f *testing.F) {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{*pod("asks", nil)}}
	var body bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(list, &body); err != nil {
		f.Fatal(err)
	}
	f.Add(body.Bytes())
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = decodePods(data) // it must not panic
	})
}

func TestATypeIsWhatNodesReport(t *testing.T) {
	node := func(name string, labels map[string]string, types ...string) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: v1.NodeStatus{
			Capacity:    v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")},
			Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("6500m")}}}
		for _, workloadType := range types {
			n.Status.Capacity[v1.ResourceName(partition.CoresResource(workloadType))] = resource.MustParse("8000")
			n.Status.Allocatable[v1.ResourceName(partition.CoresResource(workloadType))] = resource.MustParse("8000")
		}
		return n
	}
	r := newReader()
	for _, n := range []*v1.Node{node("a", nil, "management"), node("b", nil, "management", "infra"), node("c", map[string]string{v1.LabelOSStable: "windows"}), node("d", nil)} {
		r.addNode(n)
	}
	s := r.status(nil)
	want := []Type{
		{Name: "infra", NodesReporting: 1, Missing: []string{"a", "d"}, CoresMillicores: 8000},
		{Name: "management", NodesReporting: 2, Missing: []string{"d"}, CoresMillicores: 16000},
	}
	if !reflect.DeepEqual(s.Types, want) {
		t.Errorf("types are %+v, want %+v", s.Types, want)
	}
	if len(s.Nodes) != 3 || s.Nodes[0].ReservedMillicores != 1500 {
		t.Errorf("nodes are %+v", s.Nodes)
	}
}

func TestOvercommitmentIsOfThePoolIfThatIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		node  Node
		share float64
		least bool
	}{
		"a known pool": {Node{RequestedMillicores: 3000, ReservedMillicores: 4000, PoolCPUs: ptr.To(2)}, 1.5, false},
		"an unknown pool is a part of what is reserved": {Node{RequestedMillicores: 3000, ReservedMillicores: 4000}, 0.75, true},
		"nothing is reserved":                           {Node{RequestedMillicores: 3000}, 0, false},
		"a type that is not confined":                   {Node{RequestedMillicores: 3000, ReservedMillicores: 4000, PoolCPUs: ptr.To(0)}, 0, false},
	} {
		if share, least := test.node.Overcommitment(); share != test.share || least != test.least {
			t.Errorf("%s: %v, at least %v, want %v, at least %v", name, share, least, test.share, test.least)
		}
	}
}

func TestServersDecideWhetherATypeIsActive(t *testing.T) {
	server := func(plugin Plugin, active ...string) Server {
		s := Server{Plugin: plugin, Types: map[string]ServerType{}}
		for _, name := range active {
			s.Types[name] = ServerType{Active: true}
		}
		return s
	}
	for name, test := range map[string]struct {
		servers  []Server
		latched  bool
		active   *bool
		disagree bool
	}{
		"all say so":                                  {[]Server{server(Present, "management"), server(Present, "management")}, false, ptr.To(true), false},
		"one does not know the type":                  {[]Server{server(Present, "management"), server(Present)}, true, nil, true},
		"none knows the type":                         {[]Server{server(Present)}, false, ptr.To(false), false},
		"those without the plugin have no say":        {[]Server{server(Present, "management"), server(Absent), server(Unreachable)}, false, ptr.To(true), false},
		"without an answer the latch decides":         {[]Server{server(Unreachable)}, true, ptr.To(true), false},
		"without an answer and a latch it is unknown": {[]Server{server(Unreachable)}, false, nil, false},
	} {
		active, disagree := active(Type{Name: "management", Latched: test.latched}, test.servers)
		if !reflect.DeepEqual(active, test.active) || disagree != test.disagree {
			t.Errorf("%s: active %v, disagree %v, want %v and %v", name, ptr.Deref(active, false), disagree, ptr.Deref(test.active, false), test.disagree)
		}
	}
}

func TestTheGateIsOpenWhereNobodyKnows(t *testing.T) {
	types := []Type{{Name: "active", Active: ptr.To(true)}, {Name: "inactive", Active: ptr.To(false)}, {Name: "unclear"}}
	for name, test := range map[string]struct {
		plugin Plugin
		want   map[string]partition.Reason
	}{
		"a kube-apiserver has answered": {Present, map[string]partition.Reason{"active": "", "inactive": partition.ReasonTypeInactive, "unclear": "", "unlisted": partition.ReasonTypeInactive}},
		"none has answered":             {Unreachable, map[string]partition.Reason{"active": "", "inactive": partition.ReasonTypeInactive, "unclear": "", "unlisted": ""}},
	} {
		gate := (&Status{Servers: []Server{{Plugin: test.plugin}}, Types: types}).Gate()
		for workloadType, want := range test.want {
			if got := gate(workloadType); got != want {
				t.Errorf("%s: type %s is kept by %q, want %q", name, workloadType, got, want)
			}
		}
	}
}

func TestAClusterIsWithoutThePluginIfNoServerHasIt(t *testing.T) {
	for name, test := range map[string]struct {
		servers []Server
		want    string
	}{
		"no server was asked":         {nil, ""},
		"the only one lacks it":       {[]Server{{URL: "a", Plugin: Absent}}, "a"},
		"one does not answer":         {[]Server{{URL: "a", Plugin: Unreachable}, {URL: "b", Plugin: Absent}, {URL: "c", Plugin: Absent}}, "b"},
		"one has it":                  {[]Server{{URL: "a", Plugin: Absent}, {URL: "b", Plugin: Present}}, ""},
		"it is not known of the only": {[]Server{{URL: "a", Plugin: Unreachable}}, ""},
	} {
		if got := (&Status{Servers: test.servers}).WithoutPlugin(); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestManagedFieldsSayWhenTheLatchWasWritten(t *testing.T) {
	at := func(minute int) *metav1.Time { return ptr.To(metav1.NewTime(time.Unix(int64(60*minute), 0))) }
	entry := func(minute int, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: at(minute), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	latch := `{"f:metadata":{"f:annotations":{".":{},"f:workload.openshift.io/enabled":{}}}}`
	for name, test := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   *metav1.Time
	}{
		"the writer of the annotation":      {[]metav1.ManagedFieldsEntry{entry(9, `{"f:metadata":{"f:labels":{"f:a":{}}}}`), entry(3, latch)}, at(3)},
		"the last of several":               {[]metav1.ManagedFieldsEntry{entry(3, latch), entry(5, latch)}, at(5)},
		"no one":                            {nil, nil},
		"fields that cannot be read say no": {[]metav1.ManagedFieldsEntry{entry(3, "{")}, nil},
	} {
		if got := written(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{ManagedFields: test.fields}}); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestVerticalAutoscalersOnCPU(t *testing.T) {
	for name, test := range map[string]struct {
		spec string
		want bool
	}{
		"no policy":                                {`"updatePolicy": {}`, true},
		"memory only":                              {`"resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledResources": ["memory"]}]}`, false},
		"memory only, of another container":        {`"resourcePolicy": {"containerPolicies": [{"containerName": "other", "controlledResources": ["memory"]}]}`, true},
		"a container's policy beats that of all":   {`"resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledResources": ["memory"]}, {"containerName": "c", "controlledResources": ["cpu"]}]}`, true},
		"it does not update this container":        {`"resourcePolicy": {"containerPolicies": [{"containerName": "c", "mode": "Off"}]}`, false},
		"it only recommends":                       {`"updatePolicy": {"updateMode": "Off"}`, false},
		"it only updates new pods":                 {`"updatePolicy": {"updateMode": "Initial"}`, true},
		"a policy that does not name any resource": {`"resourcePolicy": {"containerPolicies": [{"containerName": "*", "minAllowed": {"cpu": "1"}}]}`, true},
	} {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(`{"kind": "VerticalPodAutoscaler", "metadata": {"namespace": "a", "name": "web"}, "spec": {"targetRef": {"kind": "Deployment", "name": "web"}, `+test.spec+`}}`), &object.Object); err != nil {
			t.Fatal(err)
		}
		r := newReader()
		r.workloads[workload{"a", "Deployment", "web"}] = []string{"c"}
		r.addVertical(object)
		if got := len(r.autoscalers) == 1; got != test.want {
			t.Errorf("%s: found is %v, want %v", name, got, test.want)
		}
		if got, want := len(r.autoscalers) == 1 && strings.Contains(r.autoscalers[0].Problem, "evicts"), test.want && !strings.Contains(test.spec, "Initial"); got != want {
			t.Errorf("%s: it is said to evict pods: %v, want %v", name, got, want)
		}
	}
}

func TestThePodsOfADeploymentAreThoseOfItsReplicaSet(t *testing.T) {
	r := newReader()
	p := pod("web-5b5f-x", partition.AnyType)
	p.Labels = map[string]string{"pod-template-hash": "5b5f"}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5b5f", Controller: ptr.To(true)}}
	r.addPod(p)
	want := map[workload][]string{{"a", "ReplicaSet", "web-5b5f"}: {"c"}, {"a", "Deployment", "web"}: {"c"}}
	if !reflect.DeepEqual(r.workloads, want) {
		t.Errorf("workloads are %v, want %v", r.workloads, want)
	}
}

// Each kube-apiserver is asked by its address, and must have a certificate for the name by which
// pods find it.
func TestEachServerIsAskedForThePlugin(t *testing.T) {
	const upstream = admissionMetric + `{name="NodeRestriction",operation="CREATE",rejected="false",type="admit"} 7` + "\n"
	serve := func(status int, metrics string) *httptest.Server {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			if request.URL.Path != "/metrics" {
				t.Errorf("it is asked for %s", request.URL)
			}
			w.WriteHeader(status)
			fmt.Fprint(w, metrics)
		}))
		t.Cleanup(s.Close)
		return s
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	servers := []struct {
		name   string
		url    string
		plugin Plugin
		types  map[string]ServerType
		error  string
	}{
		{"one with active types", serve(200, upstream+activeMetric+`{workload_type="management"} 1`+"\n"+activeMetric+`{workload_type="infra"} 0`+"\n"+unlatchedMetric+`{workload_type="management"} 1`+"\n").URL, Present,
			map[string]ServerType{"management": {Active: true, Unlatched: true}, "infra": {}}, ""},
		{"one that knows no type", serve(200, upstream+admissionMetric+`{name="workload.openshift.io/Partitioning",operation="CREATE",rejected="false",type="admit"} 7`+"\n").URL, Present, map[string]ServerType{}, ""},
		{"one without the plugin", serve(200, upstream).URL, Absent, nil, ""},
		{"one that has just started", serve(200, "go_goroutines 7\n").URL, Unreachable, nil, "just started"},
		{"one that is not ready", serve(500, "").URL, Unreachable, nil, "an error on the server"},
		{"one that cannot be reached", "https://" + closed.Addr().String(), Unreachable, nil, "connection refused"},
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}}}}
	for _, server := range servers {
		_, port, _ := strings.Cut(strings.TrimPrefix(server.url, "https://"), ":")
		number, _ := strconv.Atoi(port)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Port: ptr.To(int32(number))})
	}
	ask := func(serverName string) map[string]Server {
		authority := serve(200, upstream)
		config := &rest.Config{Host: servers[0].url, TLSClientConfig: rest.TLSClientConfig{ServerName: serverName,
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw})}}
		asked, unknown, err := readServers(t.Context(), fake.NewClientset(slice), config, true)
		if err != nil || len(unknown) > 0 || len(asked) != len(servers) || !asked[0].Configured || asked[0].URL != servers[0].url {
			t.Fatalf("servers are %+v, unknown %+v, error %v", asked, unknown, err)
		}
		byURL := map[string]Server{}
		for _, server := range asked {
			byURL[server.URL] = server
		}
		return byURL
	}
	asked := ask("example.com") // the name in httptest's certificate
	for _, want := range servers {
		got := asked[want.url]
		if got.Plugin != want.plugin || !maps.Equal(got.Types, want.types) || (want.error == "") != (got.Error == "") || !strings.Contains(got.Error, want.error) {
			t.Errorf("%s: %+v, want %+v", want.name, got, want)
		}
	}
	if got := ask("")[servers[1].url]; got.Plugin != Unreachable || !strings.Contains(got.Error, "not "+serverName) {
		t.Errorf("one whose certificate is for another name: %+v", got)
	}
}

// Who may read nothing is told what that hides, and each right is named.
func TestEachMissingRightIsNamed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: 403, Message: request.URL.Path + " is forbidden"})
	}))
	defer server.Close()
	s, err := Read(t.Context(), &rest.Config{Host: server.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var rights []string
	for _, unknown := range s.Unknown {
		rights = append(rights, unknown.Right)
	}
	slices.Sort(rights)
	want := []string{"get namespaces, of the name kube-system", "get the path /metrics", "list endpointslices.discovery.k8s.io, in the namespace default",
		"list horizontalpodautoscalers.autoscaling", "list namespaces", "list nodes", "list pods", "list verticalpodautoscalers.autoscaling.k8s.io"}
	if !slices.Equal(rights, want) || s.Found() || !s.Incomplete() || !s.NodesUnknown {
		t.Errorf("rights are %q, want %q; found %v, incomplete %v", rights, want, s.Found(), s.Incomplete())
	}
}

func TestNodesWithoutATypeAreFoundIfItIsKnownWhetherThatIsActive(t *testing.T) {
	for name, test := range map[string]struct {
		active *bool
		want   bool
	}{
		"an active type": {ptr.To(true), true}, "an inactive type": {ptr.To(false), true}, "an unknown type": {nil, false},
	} {
		s := &Status{Types: []Type{{Name: "management", Active: test.active, Missing: []string{"n1"}}}}
		if got := s.Found(); got != test.want {
			t.Errorf("%s: found is %v, want %v", name, got, test.want)
		}
	}
}

func TestOnlyAMissingRightIsCalledOne(t *testing.T) {
	resource := v1.Resource("nodes")
	for name, test := range map[string]struct {
		err   error
		right string
	}{
		"forbidden":            {apierrors.NewForbidden(resource, "", nil), "list nodes"},
		"an overloaded server": {apierrors.NewTooManyRequests("later", 1), ""},
		"a timeout":            {apierrors.NewTimeoutError("too late", 1), ""},
	} {
		var unknown []Unknown
		if err := Note(&unknown, "list nodes", "which nodes there are", test.err); err != nil || len(unknown) != 1 || unknown[0].Right != test.right || unknown[0].Error != test.err.Error() {
			t.Errorf("%s: unknown is %+v, error %v, want the right %q", name, unknown, err, test.right)
		}
	}
}

func TestKubeletsReportTheSizesOfTheirPools(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch request.URL.Path {
		case "/api/v1/nodes/answers/proxy/metrics":
			fmt.Fprintf(w, "# TYPE %s gauge\n%s{workload_type=\"management\"} 2\n%s{workload_type=\"infra\"} 0\n", poolMetric, poolMetric, poolMetric)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	r := newReader()
	r.client = kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
	for _, node := range []string{"answers", "refused"} {
		for _, workloadType := range []string{"management", "infra", "new"} {
			r.nodeOf(node, workloadType).reports = true
		}
	}
	r.nodeOf("gone", "management") // its pods are left, and it does not report
	r.readPools(t.Context())
	want := map[nodeType]*int{{"answers", "management"}: ptr.To(2), {"answers", "infra"}: ptr.To(0), {"answers", "new"}: nil, {"refused", "management"}: nil, {"gone", "management"}: nil}
	for key, cpus := range want {
		if got := r.nodes[key].PoolCPUs; !reflect.DeepEqual(got, cpus) {
			t.Errorf("the pool of %v has %v CPUs, want %v", key, ptr.Deref(got, -1), ptr.Deref(cpus, -1))
		}
	}
	if len(r.unknown) != 2 || r.unknown[0].Right != "get nodes/proxy" || r.unknown[0].What != "the sizes of the pools on 1 node(s), such as refused" ||
		r.unknown[1].What != "the sizes of the pools on 1 node(s), such as answers" || !strings.Contains(r.unknown[1].Error, poolMetric) {
		t.Errorf("unknown is %+v", r.unknown)
	}
}

func TestAClusterThatDoesNotAnswerIsAnError(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	if s, err := Read(context.Background(), &rest.Config{Host: server.URL}, Options{}); err == nil {
		t.Errorf("the status is %+v", s)
	}
}
