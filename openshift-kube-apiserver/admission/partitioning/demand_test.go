package partitioning

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

func cpuOf(text string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(text)}
}

func limitRange(item v1.LimitRangeItem) *v1.LimitRange {
	if item.Type == "" {
		item.Type = v1.LimitTypeContainer
	}
	return &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "of-cpu", Namespace: "open"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{item}}}
}

func resourceQuota(name v1.ResourceName, scopes ...v1.ResourceQuotaScope) *v1.ResourceQuota {
	hard := v1.ResourceList{name: resource.MustParse("100")}
	return &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "of-cpu", Namespace: "open"}, Spec: v1.ResourceQuotaSpec{Hard: hard, Scopes: scopes},
		Status: v1.ResourceQuotaStatus{Hard: hard, Used: v1.ResourceList{name: resource.MustParse("0")}}}
}

// namespaceDemands are objects that constrain cpu, or seem to; refuses is part of what
// upstream says of a pod without cpu, and empty if it says nothing.
var namespaceDemands = map[string]struct {
	object  runtime.Object
	zero    bool
	refuses string
}{
	"a LimitRange with defaults":           {limitRange(v1.LimitRangeItem{Default: cpuOf("2"), DefaultRequest: cpuOf("100m")}), false, ""},
	"a LimitRange with a minimum":          {limitRange(v1.LimitRangeItem{Min: cpuOf("50m")}), false, "minimum cpu usage per Container is 50m"},
	"a LimitRange with a maximum":          {limitRange(v1.LimitRangeItem{Max: cpuOf("4")}), false, "maximum cpu usage per Container is 4"},
	"a LimitRange with a ratio":            {limitRange(v1.LimitRangeItem{MaxLimitRequestRatio: cpuOf("10")}), false, "cpu max limit to request ratio"},
	"a LimitRange with a minimum of a pod": {limitRange(v1.LimitRangeItem{Type: v1.LimitTypePod, Min: cpuOf("50m")}), false, "minimum cpu usage per Pod is 50m"},
	"a LimitRange of memory":               {limitRange(v1.LimitRangeItem{Max: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}, Default: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}), false, ""},
	"a LimitRange that refuses it anyway":  {limitRange(v1.LimitRangeItem{Min: cpuOf("3")}), false, ""},
	"a LimitRange of cores":                {limitRange(v1.LimitRangeItem{Max: v1.ResourceList{"management.workload.openshift.io/cores": resource.MustParse("100")}}), false, ""},
	"a quota on cpu":                       {resourceQuota(v1.ResourceCPU), true, ""},
	"a quota on requests.cpu":              {resourceQuota(v1.ResourceRequestsCPU), true, ""},
	"a quota on limits.cpu":                {resourceQuota(v1.ResourceLimitsCPU), false, "must specify limits.cpu for: c"},
	"a quota on memory":                    {resourceQuota(v1.ResourceRequestsMemory), false, ""},
	"a quota whose scopes match":           {resourceQuota(v1.ResourceLimitsCPU, v1.ResourceQuotaScopeNotBestEffort), false, "must specify limits.cpu for: c"},
	"a quota whose scopes do not match":    {resourceQuota(v1.ResourceLimitsCPU, v1.ResourceQuotaScopeTerminating), false, ""},
	"a quota that counts other pods":       {resourceQuota(v1.ResourceRequestsCPU, v1.ResourceQuotaScopeTerminating), false, ""},
}

func TestWhatTheNamespaceDemands(t *testing.T) {
	for name, test := range namespaceDemands {
		t.Run(name, func(t *testing.T) {
			p, _ := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("open", partition.AllowedAnnotation, "management"), test.object)
			eventually(t, "the type is active", func() bool { return p.activation.Active("management") })
			build := func(effect string) *core.Pod {
				pod := newPod(map[string]string{managementTarget: effect})
				pod.Spec.Containers[0].Resources.Limits = core.ResourceList{core.ResourceCPU: resource.MustParse("500m")}
				return pod
			}
			pod := build("")
			told, err := create(t, p, pod, "open")
			if err != nil {
				t.Fatal(err)
			}
			resources := pod.Spec.Containers[0].Resources
			cpu, has := resources.Requests[core.ResourceCPU]
			if test.refuses != "" {
				if cpu.MilliValue() != 400 || internalpod.CarriesCores(pod) || resources.Limits.CPU().MilliValue() != 500 || !strings.Contains(strings.Join(told, ""), test.refuses) || !strings.Contains(strings.Join(told, ""), `"of-cpu"`) {
					t.Errorf("the pod has %v, told %q, want an ordinary one and %q", resources, told, test.refuses)
				}
				if _, err := create(t, p, build(`{"effect": "RequiredDuringScheduling"}`), "open"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refuses) || !strings.Contains(err.Error(), `"of-cpu"`) {
					t.Errorf("with the hard effect got %v", err)
				}
			} else if !internalpod.CarriesCores(pod) || has != test.zero || !cpu.IsZero() || len(told) > 0 {
				t.Errorf("the pod has %v, told %q, want a partitioned one, with a zero: %v", resources, told, test.zero)
			}
			template := build("")
			var r recorder
			deployment := &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec}}}
			if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(deployment, nil, "open", "", admission.Create), nil); err != nil {
				t.Error(err)
			}
			if got := strings.Join(r.warnings, ""); !strings.Contains(got, test.refuses) || (test.refuses == "") != (got == "") {
				t.Errorf("of the template was told %q, want %q", got, test.refuses)
			}
			expectMirror(t, p, test.refuses == "")
		})
	}
}

// expectMirror checks that a mirror is counted once: by its cores, or, where the namespace
// refuses that, by its cpu.
func expectMirror(t *testing.T, p *plugin, byCores bool) {
	t.Helper()
	mirror := newPod(map[string]string{core.MirrorPodAnnotationKey: "hash", managementTarget: ""})
	mirror.Spec.Containers[0].Resources.Limits = core.ResourceList{core.ResourceCPU: resource.MustParse("500m")}
	partition.Mutate(internalpod.View(mirror), partition.Policy{Gate: partition.AnyType})
	annotations := fmt.Sprint(mirror.Annotations)
	mirror.Spec.NodeName = "a"
	// What LimitRanger may put in.
	mirror.Spec.Containers[0].Resources.Requests[core.ResourceCPU] = resource.MustParse("100m")
	mirror.Spec.Containers[0].Resources.Limits[core.ResourceCPU] = resource.MustParse("2")
	kubelet := &user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}}
	for _, again := range []bool{false, true} {
		var webhooks []func(*core.Pod)
		if again {
			webhooks = append(webhooks, func(*core.Pod) {})
		}
		pod := mirror.DeepCopy()
		if told, err := createAs(t, p, pod, "open", kubelet, webhooks...); err != nil || len(told) > 0 {
			t.Errorf("a mirror got %v, %q", err, told)
		}
		resources := pod.Spec.Containers[0].Resources
		cpu, limit := resources.Requests[core.ResourceCPU], resources.Limits[core.ResourceCPU]
		if byCores != internalpod.CarriesCores(pod) || (byCores && (!cpu.IsZero() || !limit.IsZero())) || (!byCores && (cpu.MilliValue() != 400 || limit.MilliValue() != 500)) || fmt.Sprint(pod.Annotations) != annotations {
			t.Errorf("the mirror has %v and %v, want its cores: %v", resources, pod.Annotations, byCores)
		}
	}
}

// Anybody but the node itself cannot have a pod exempt, in either phase.
func TestMirrorsOfOthersArePodsLikeAnyOther(t *testing.T) {
	p, _ := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("plain", "", ""))
	for name, as := range map[string]user.Info{
		"nobody":                      nil,
		"a user":                      &user.DefaultInfo{Name: "mallory"},
		"a user called a node":        &user.DefaultInfo{Name: "system:node:a"},
		"another node":                &user.DefaultInfo{Name: "system:node:b", Groups: []string{user.NodesGroup}},
		"a user in the group of them": &user.DefaultInfo{Name: "a", Groups: []string{user.NodesGroup}},
	} {
		t.Run(name, func(t *testing.T) {
			build := func() *core.Pod {
				pod := newPod(map[string]string{core.MirrorPodAnnotationKey: "hash", managementTarget: ""})
				partition.Mutate(internalpod.View(pod), partition.Policy{Gate: partition.AnyType})
				pod.Spec.NodeName = "a"
				return pod
			}
			pod := build()
			if _, err := createAs(t, p, pod, "plain", as); err != nil || internalpod.CarriesCores(pod) {
				t.Errorf("got %v, %v", err, pod.Spec.Containers)
			}
			request := admission.NewAttributesRecord(build(), nil, core.Kind("Pod").WithVersion("version"), "plain", "", core.Resource("pods").WithVersion("version"), "", admission.Create, nil, false, as)
			if err := p.Validate(t.Context(), request, nil); !apierrors.IsForbidden(err) {
				t.Errorf("the second phase gave %v", err)
			}
		})
	}
}

// A webhook that comes last can make a whole partitioned pod. What the caches deny counts
// only after a live read.
func TestAForgedPartitionedPodIsRefused(t *testing.T) {
	p, client := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("plain", "", ""))
	eventually(t, "the type is active", func() bool { return p.activation.Active("management") })
	for name, requests := range map[string]core.ResourceList{"BestEffort": nil, "Burstable": newPod(nil).Spec.Containers[0].Resources.Requests} {
		forge := func(pod *core.Pod) {
			pod.Annotations = map[string]string{managementTarget: ""}
			partition.Mutate(internalpod.View(pod), partition.Policy{Gate: partition.AnyType})
		}
		build := func() *core.Pod {
			pod := newPod(nil)
			pod.Spec.Containers[0].Resources.Requests = requests.DeepCopy()
			return pod
		}
		if _, err := createAs(t, p, build(), "plain", nil, func(*core.Pod) {}, forge); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the namespace is not annotated") {
			t.Errorf("%s: got %v", name, err)
		}
		late := namespace("late-"+strings.ToLower(name), partition.AllowedAnnotation, "management")
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := createAs(t, p, build(), late.Name, nil, func(*core.Pod) {}, forge); err != nil {
			t.Errorf("%s, where it may be: got %v", name, err)
		}
	}
}

// Pods of these become Guaranteed by defaulting, which a template has not seen.
func TestTemplatesThatDefaultingMakesGuaranteed(t *testing.T) {
	p, _ := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("open", partition.AllowedAnnotation, "management"))
	eventually(t, "the type is active", func() bool { return p.activation.Active("management") })
	one, memory := resource.MustParse("1"), resource.MustParse("1Gi")
	for name, test := range map[string]struct {
		resources core.ResourceRequirements
		warned    bool
	}{
		"limits only": {core.ResourceRequirements{Limits: core.ResourceList{core.ResourceCPU: one, core.ResourceMemory: memory}}, true},
		"a memory limit and a cpu request equal to its limit": {core.ResourceRequirements{Requests: core.ResourceList{core.ResourceCPU: one}, Limits: core.ResourceList{core.ResourceCPU: one, core.ResourceMemory: memory}}, true},
		"a memory request": {core.ResourceRequirements{Requests: core.ResourceList{core.ResourceMemory: resource.MustParse("1Mi")}, Limits: core.ResourceList{core.ResourceCPU: one, core.ResourceMemory: memory}}, false},
	} {
		pod := newPod(map[string]string{managementTarget: ""})
		pod.Spec.Containers[0].Resources = test.resources
		deployment := &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}}
		var r recorder
		before := deployment.DeepCopy()
		if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(deployment, nil, "open", "", admission.Create), nil); err != nil {
			t.Error(err)
		}
		if got := strings.Join(r.warnings, ""); strings.Contains(got, "Guaranteed") != test.warned || (got != "") != test.warned {
			t.Errorf("%s: told %q", name, got)
		}
		if fmt.Sprint(before) != fmt.Sprint(deployment) {
			t.Errorf("%s: the template was changed", name)
		}
	}
}

// A template that asks in vain is read often, and a warning is no decision: the cache will do.
func TestTemplatesCostNoRequest(t *testing.T) {
	p, client := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("plain", "", ""))
	eventually(t, "the type is latched", func() bool { return p.activation.States()["management"].Latched })
	pod := newPod(map[string]string{managementTarget: ""})
	deployment := &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}}
	client.ClearActions()
	for range 10 {
		var r recorder
		if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(deployment, nil, "plain", "", admission.Update), nil); err != nil || len(r.warnings) != 1 {
			t.Errorf("got %v, %q", err, r.warnings)
		}
	}
	for _, action := range client.Actions() {
		if action.Matches("get", "namespaces") && action.GetNamespace() == "" {
			t.Errorf("a request %v", action)
		}
	}
	if _, err := create(t, p, pod, "plain"); err != nil || !slices.ContainsFunc(client.Actions(), func(action clienttesting.Action) bool { return action.Matches("get", "namespaces") }) {
		t.Errorf("a pod got %v, and its no no live read", err)
	}
}

// An autoscaler's webhook: what it says of memory stands, what it says of cpu is told of.
func TestRecommendationsOfAWebhook(t *testing.T) {
	p, _ := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("open", partition.AllowedAnnotation, "management"),
		limitRange(v1.LimitRangeItem{Default: cpuOf("2"), DefaultRequest: cpuOf("100m")}))
	eventually(t, "the type is active", func() bool { return p.activation.Active("management") })
	set := func(name core.ResourceName, value string) func(*core.Pod) {
		return func(pod *core.Pod) { pod.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(value) }
	}
	for name, test := range map[string]struct {
		webhook func(*core.Pod)
		memory  string
		told    string
	}{
		"memory":                  {set(core.ResourceMemory, "5Mi"), "5Mi", ""},
		"cpu":                     {set(core.ResourceCPU, "800m"), "1Mi", `container "c"`},
		"what LimitRanger put in": {set(core.ResourceCPU, "100m"), "1Mi", ""},
	} {
		pod := newPod(map[string]string{managementTarget: ""})
		told, err := createAs(t, p, pod, "open", nil, test.webhook)
		if err != nil {
			t.Fatal(err)
		}
		requests := pod.Spec.Containers[0].Resources.Requests
		cores := requests["management.workload.openshift.io/cores"]
		if got := strings.Join(told, ""); !strings.Contains(got, test.told) || (got == "") != (test.told == "") || requests.Memory().String() != test.memory || cores.Value() != 400 || !requests.CPU().IsZero() {
			t.Errorf("%s: told %q, the pod has %v", name, got, requests)
		}
	}
}
