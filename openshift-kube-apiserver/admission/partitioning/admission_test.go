package partitioning

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

const managementTarget = partition.TargetPrefix + "management"

func node(name string, types ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}}
	for _, workloadType := range types {
		n.Status.Capacity[v1.ResourceName(partition.CoresResource(workloadType))] = resource.MustParse("4000")
	}
	return n
}

func namespace(name, annotation, value string) *v1.Namespace {
	n := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if annotation != "" {
		n.Annotations = map[string]string{annotation: value}
	}
	return n
}

// start runs the plugin against a fake API with the objects.
func start(t *testing.T, objects ...runtime.Object) (*plugin, *fake.Clientset) {
	t.Helper()
	return startWith(t, config.Configuration{}, nil, objects...)
}

// startWith has a configuration, and a client of the object that it names.
func startWith(t *testing.T, settings config.Configuration, dynamic dynamic.Interface, objects ...runtime.Object) (*plugin, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	p := newPlugin(settings)
	factory := informers.NewSharedInformerFactory(client, 0)
	// kube-apiserver's own initializer, since the order of its calls matters.
	newInitializer(t, client, dynamic, factory).Initialize(p)
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	eventually(t, "the caches are filled", p.activation.Synced)
	return p, client
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 500 {
		if condition() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("not in time: " + what)
}

func newPod(annotations map[string]string) *core.Pod {
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Annotations: annotations},
		Spec: core.PodSpec{Containers: []core.Container{{Name: "c", Resources: core.ResourceRequirements{Requests: core.ResourceList{
			core.ResourceCPU: resource.MustParse("400m"), core.ResourceMemory: resource.MustParse("1Mi")}}}}},
	}
}

type recorder struct{ warnings []string }

func (r *recorder) AddWarning(_, text string) { r.warnings = append(r.warnings, text) }

func attributes(object, old runtime.Object, namespace, subresource string, operation admission.Operation) admission.Attributes {
	return admission.NewAttributesRecord(object, old, core.Kind("Pod").WithVersion("version"), namespace, "", core.Resource("pods").WithVersion("version"), subresource, operation, nil, false, nil)
}

// create runs both phases, as a request without webhooks does.
func create(t *testing.T, p *plugin, pod *core.Pod, namespace string) ([]string, error) {
	t.Helper()
	return createAs(t, p, pod, namespace, nil)
}

func createAs(t *testing.T, p *plugin, pod *core.Pod, namespace string, as user.Info, webhooks ...func(*core.Pod)) ([]string, error) {
	t.Helper()
	var r recorder
	ctx := warning.WithWarningRecorder(t.Context(), &r)
	request := func() admission.Attributes {
		return admission.NewAttributesRecord(pod, nil, core.Kind("Pod").WithVersion("version"), namespace, "", core.Resource("pods").WithVersion("version"), "", admission.Create, nil, false, as)
	}
	a := request()
	if err := p.Admit(ctx, a, nil); err != nil {
		return r.warnings, err
	}
	// The first webhook runs after the first run, and has another one made; the others run
	// after that.
	for i, change := range webhooks {
		change(pod)
		if i > 0 {
			continue
		}
		a.GetReinvocationContext().SetIsReinvoke()
		if err := p.Admit(ctx, a, nil); err != nil {
			return r.warnings, err
		}
	}
	// The server makes new attributes for the second phase.
	err := p.Validate(ctx, request(), nil)
	return r.warnings, err
}

func TestPodsThatDoNotAskPass(t *testing.T) {
	p, _ := start(t)
	for name, annotations := range map[string]map[string]string{
		"no annotation":     nil,
		"other annotations": {"a": "b", "target.example.com/management": "", core.MirrorPodAnnotationKey: "x"},
	} {
		pod := newPod(annotations)
		before := pod.DeepCopy()
		if warnings, err := create(t, p, pod, "none"); err != nil || len(warnings) > 0 || fmt.Sprint(before) != fmt.Sprint(pod) {
			t.Errorf("%s: %v, %v, %v", name, warnings, err, pod)
		}
	}
	pod := newPod(map[string]string{"kubernetes.io/config.source": "file", partition.ResourcesPrefix + "c": `{"cpuset": "0"}`})
	if _, err := create(t, p, pod, "none"); err != nil || len(pod.Annotations) != 1 {
		t.Errorf("a forged annotation stays: %v, %v", err, pod.Annotations)
	}
	pod = newPod(map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"})
	a := attributes(pod, nil, "none", "", admission.Create)
	update := attributes(pod, pod.DeepCopy(), "none", "", admission.Update)
	again := attributes(pod, nil, "none", "", admission.Create)
	again.GetReinvocationContext().SetIsReinvoke()
	ctx := t.Context()
	for what, a := range map[string]admission.Attributes{"creation": a, "second run": again, "update": update} {
		if allocs := testing.AllocsPerRun(100, func() { _, _ = p.Admit(ctx, a, nil), p.Validate(ctx, a, nil) }); allocs != 0 {
			t.Errorf("the %s of a pod that does not ask costs %v allocations", what, allocs)
		}
	}
}

func TestNobodyEntersOrLeavesAPartitionLater(t *testing.T) {
	p, _ := start(t)
	target := map[string]string{managementTarget: `{"effect":"PreferredDuringScheduling"}`, partition.ResourcesPrefix + "c": `{"cpushares":400}`}
	for name, test := range map[string]struct {
		stored, sent map[string]string
		warned       bool
	}{
		"joins":    {map[string]string{"a": "b"}, map[string]string{"a": "c", managementTarget: "", partition.ResourcesPrefix + "c": "{}"}, true},
		"leaves":   {target, nil, true},
		"is quiet": {target, target, false},
	} {
		for _, subresource := range []string{"", "status", "ephemeralcontainers", "resize"} {
			old, pod := newPod(test.stored), newPod(test.sent)
			for _, p := range []*core.Pod{old, pod} {
				delete(p.Spec.Containers[0].Resources.Requests, core.ResourceCPU)
			}
			var r recorder
			if err := p.Admit(warning.WithWarningRecorder(t.Context(), &r), attributes(pod.DeepCopy(), old, "x", subresource, admission.Update), nil); err != nil {
				t.Fatal(err)
			}
			if (len(r.warnings) > 0) != test.warned {
				t.Errorf("%s by %q: warnings %q", name, subresource, r.warnings)
			}
			updated := pod.DeepCopy()
			_ = p.Admit(t.Context(), attributes(updated, old, "x", subresource, admission.Update), nil)
			for key, value := range updated.Annotations {
				if partition.OwnsAnnotation(key) && test.stored[key] != value {
					t.Errorf("%s by %q: %s is %q", name, subresource, key, value)
				}
			}
			for key, value := range test.stored {
				if partition.OwnsAnnotation(key) && updated.Annotations[key] != value {
					t.Errorf("%s by %q: %s is gone", name, subresource, key)
				}
			}
		}
	}
	for _, resource := range []string{"pods", "bindings"} {
		legacy := &core.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{managementTarget: "", "a": "b"}}}
		a := admission.NewAttributesRecord(legacy, nil, core.Kind("Binding").WithVersion("version"), "x", "", core.Resource(resource).WithVersion("version"), "", admission.Create, nil, false, nil)
		if err := p.Admit(t.Context(), a, nil); err != nil || len(legacy.Annotations) != 1 {
			t.Errorf("a binding by %s keeps %v, %v", resource, legacy.Annotations, err)
		}
	}
	binding := &core.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{managementTarget: "", "a": "b"}}}
	if err := p.Admit(t.Context(), attributes(binding, nil, "x", "binding", admission.Create), nil); err != nil || len(binding.Annotations) != 1 {
		t.Errorf("a binding keeps %v, %v", binding.Annotations, err)
	}
}

func TestResize(t *testing.T) {
	limitRange := &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "limited"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{{
		Type: v1.LimitTypeContainer, DefaultRequest: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}, Default: v1.ResourceList{v1.ResourceCPU: resource.MustParse("200m")},
	}}}}
	p, _ := start(t, limitRange)
	cores := core.ResourceName("management.workload.openshift.io/cores")
	partitioned := newPod(map[string]string{managementTarget: `{"effect":"PreferredDuringScheduling"}`, partition.ResourcesPrefix + "c": `{"cpushares":400}`})
	partitioned.Spec.Containers[0].Resources = core.ResourceRequirements{
		Requests: core.ResourceList{cores: resource.MustParse("400"), core.ResourceMemory: resource.MustParse("1Mi")}, Limits: core.ResourceList{cores: resource.MustParse("400")}}
	withZero := partitioned.DeepCopy()
	withZero.Spec.Containers[0].Resources.Requests[core.ResourceCPU] = resource.MustParse("0")
	for name, test := range map[string]struct {
		stored    *core.Pod
		change    func(*core.ResourceRequirements)
		wantError string
	}{
		"memory, with a zero":                         {withZero, func(r *core.ResourceRequirements) { r.Requests[core.ResourceMemory] = resource.MustParse("2Mi") }, ""},
		"memory, without the zero":                    {withZero, func(r *core.ResourceRequirements) { delete(r.Requests, core.ResourceCPU) }, ""},
		"memory, with a default in place of the zero": {withZero, func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("100m") }, ""},
		"cpu request in place of the zero":            {withZero, func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("500m") }, "spec.containers[0].resources.requests[cpu]"},
		"memory":                                      {partitioned, func(r *core.ResourceRequirements) { r.Requests[core.ResourceMemory] = resource.MustParse("2Mi") }, ""},
		"memory, with LimitRanger's defaults": {partitioned, func(r *core.ResourceRequirements) {
			r.Requests[core.ResourceCPU], r.Limits[core.ResourceCPU] = resource.MustParse("100m"), resource.MustParse("200m")
		}, ""},
		"cpu request": {partitioned, func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("500m") },
			`spec.containers[0].resources.requests[cpu]: Invalid value: "500m": the CPU of a partitioned pod does not change after its creation; it is counted as management.workload.openshift.io/cores`},
		"cpu limit":             {partitioned, func(r *core.ResourceRequirements) { r.Limits[core.ResourceCPU] = resource.MustParse("500m") }, "spec.containers[0].resources.limits[cpu]"},
		"an ordinary pod's cpu": {newPod(nil), func(r *core.ResourceRequirements) { r.Requests[core.ResourceCPU] = resource.MustParse("500m") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := test.stored.DeepCopy()
			test.change(&pod.Spec.Containers[0].Resources)
			err := p.Admit(t.Context(), attributes(pod, test.stored, "limited", "resize", admission.Update), nil)
			if test.wantError != "" {
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got %v, want an error with %q", err, test.wantError)
				}
				return
			}
			now, has := pod.Spec.Containers[0].Resources.Requests[core.ResourceCPU]
			if _, had := test.stored.Spec.Containers[0].Resources.Requests[core.ResourceCPU]; err != nil || has != had || (test.stored == withZero && !now.IsZero()) {
				t.Errorf("got %v, %v", err, pod.Spec.Containers[0].Resources)
			}
		})
	}
}

func TestTemplatesThatWouldBeIgnoredGiveAWarning(t *testing.T) {
	p, _ := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("open", partition.AllowedAnnotation, "management"), namespace("plain", "", ""))
	eventually(t, "the type is active", func() bool { return p.activation.Active("management") })
	pod := newPod(map[string]string{managementTarget: ""})
	template := core.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	for kind, object := range map[string]runtime.Object{
		"Deployment": &apps.Deployment{Spec: apps.DeploymentSpec{Template: template}}, "DaemonSet": &apps.DaemonSet{Spec: apps.DaemonSetSpec{Template: template}},
		"StatefulSet": &apps.StatefulSet{Spec: apps.StatefulSetSpec{Template: template}}, "ReplicaSet": &apps.ReplicaSet{Spec: apps.ReplicaSetSpec{Template: template}},
		"Job": &batch.Job{Spec: batch.JobSpec{Template: template}}, "CronJob": &batch.CronJob{Spec: batch.CronJobSpec{JobTemplate: batch.JobTemplateSpec{Spec: batch.JobSpec{Template: template}}}},
		"ReplicationController": &core.ReplicationController{Spec: core.ReplicationControllerSpec{Template: &template}},
	} {
		for namespace, want := range map[string]string{"open": "", "plain": `pods of this template: workload type "management" ignored: the namespace is not annotated with workload.openshift.io/allowed`} {
			var r recorder
			before := object.DeepCopyObject()
			if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(object, nil, namespace, "", admission.Create), nil); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			if got := strings.Join(r.warnings, "\n"); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
				t.Errorf("%s in namespace %s: warnings %q, want %q", kind, namespace, got, want)
			}
			if fmt.Sprint(before) != fmt.Sprint(object) {
				t.Errorf("%s was changed", kind)
			}
		}
	}
	var r recorder
	empty := &core.ReplicationController{}
	if err := p.Validate(warning.WithWarningRecorder(t.Context(), &r), attributes(empty, nil, "open", "", admission.Create), nil); err != nil || len(r.warnings) > 0 {
		t.Errorf("got %v, %q", err, r.warnings)
	}
}

func TestAPodThatIsChangedAfterTheDecisionIsRefused(t *testing.T) {
	p, _ := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("open", partition.AllowedAnnotation, "management"))
	eventually(t, "the type is active", func() bool { return p.activation.Active("management") })
	pod := newPod(map[string]string{managementTarget: ""})
	if _, err := create(t, p, pod, "open"); err != nil {
		t.Fatal(err)
	}
	a := attributes(pod, nil, "open", "", admission.Create)
	if err := p.Validate(t.Context(), a, nil); err != nil {
		t.Errorf("the pod as decided: %v", err)
	}
	pod.Spec.Containers[0].Resources.Requests[core.ResourceCPU] = resource.MustParse("1")
	if err := p.Validate(t.Context(), a, nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "webhook") {
		t.Errorf("cpu set again: %v", err)
	}
	skipped := newPod(map[string]string{managementTarget: ""})
	skipped.Spec.Containers[0].Resources.Requests = core.ResourceList{core.ResourceCPU: resource.MustParse("1")}
	if _, err := create(t, p, skipped, "open"); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(t.Context(), attributes(skipped, nil, "open", "", admission.Create), nil); err != nil {
		t.Errorf("a skipped pod: %v", err)
	}
}

func TestANamespaceThatTheCacheDoesNotKnowYet(t *testing.T) {
	p, client := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("late", "", ""))
	eventually(t, "the type is active", func() bool { return p.activation.Active("management") })
	// The cache is stopped in the past by a lister of its own.
	stale := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Namespaces()
	if err := stale.Informer().GetIndexer().Add(namespace("late", "", "")); err != nil {
		t.Fatal(err)
	}
	p.gate.SetNamespaces(stale.Lister())
	if _, err := client.CoreV1().Namespaces().Update(t.Context(), namespace("late", partition.AllowedAnnotation, "management"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := newPod(map[string]string{managementTarget: ""})
	if warnings, err := create(t, p, pod, "late"); err != nil || len(warnings) > 0 {
		t.Errorf("got %q, %v", warnings, err)
	}
}

func TestWithoutCachesClientsComeAgain(t *testing.T) {
	p := newPlugin(config.Configuration{})
	client := fake.NewClientset()
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(informers.NewSharedInformerFactory(client, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := p.Admit(ctx, attributes(newPod(map[string]string{managementTarget: ""}), nil, "x", "", admission.Create), nil)
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v, want 503", err)
	}
	forged := newPod(map[string]string{managementTarget: ""})
	partition.Mutate(internalpod.View(forged), partition.Policy{Gate: partition.AnyType})
	if err := p.Validate(ctx, attributes(forged, nil, "x", "", admission.Create), nil); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the second phase gave %v, want 503", err)
	}
	if err := p.Admit(ctx, attributes(newPod(nil), nil, "x", "", admission.Create), nil); err != nil {
		t.Errorf("a pod that does not ask got %v", err)
	}
}

// Until the object has been seen on which the configuration has it decide, nothing is decided.
func TestAPodWaitsForTheObjectThatDecides(t *testing.T) {
	kinds := map[schema.GroupVersionResource]string{{Group: "config.openshift.io", Version: "v1", Resource: "infrastructures"}: "InfrastructureList"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	client.PrependReactor("list", "infrastructures", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	p, _ := startWith(t, config.Configuration{Activation: config.Activation{Source: config.SourceInfrastructure, Types: []string{"management"}}}, client,
		namespace("kube-system", "", ""), namespace("open", partition.AllowedAnnotation, "management, other"))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := p.Admit(ctx, attributes(newPod(map[string]string{managementTarget: ""}), nil, "open", "", admission.Create), nil)
	want := `workload.openshift.io/Partitioning has not seen the infrastructures.config.openshift.io "cluster" yet, which decides on the workload type "management"; try again`
	if !apierrors.IsServiceUnavailable(err) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if told, err := create(t, p, newPod(map[string]string{partition.TargetAnnotation("other"): ""}), "open"); err != nil || len(told) != 1 {
		t.Errorf("a pod of another type got %v, %q", err, told)
	}
}

func TestMetrics(t *testing.T) {
	p, client := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("open", partition.AllowedAnnotation, "management, invented-1, invented-2, half"))
	eventually(t, "the type is latched", func() bool { return p.activation.States()["management"].Latched })
	// What one node reports alone makes no label: a node may report anything.
	for name, types := range map[string][]string{"b": {"half", "two"}, "c": {"two"}} {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node(name, types...), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the other nodes are seen", func() bool { return p.activation.Known("two") })
	legacyregistry.Reset()
	for _, target := range []string{"management", "management", "invented-1", "invented-2", "half"} {
		if _, err := create(t, p, newPod(map[string]string{partition.TargetAnnotation(target): ""}), "open"); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = create(t, p, newPod(map[string]string{managementTarget: "x"}), "open")
	_, _ = create(t, p, newPod(nil), "open")
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP apiserver_workload_partitioning_active [ALPHA] Whether pods are partitioned as a workload type that the cluster knows.
# TYPE apiserver_workload_partitioning_active gauge
apiserver_workload_partitioning_active{workload_type="management"} 1
apiserver_workload_partitioning_active{workload_type="two"} 0
# HELP apiserver_workload_partitioning_nodes_missing [ALPHA] Number of nodes that do not report the cores of a workload type that the cluster knows.
# TYPE apiserver_workload_partitioning_nodes_missing gauge
apiserver_workload_partitioning_nodes_missing{workload_type="management"} 2
apiserver_workload_partitioning_nodes_missing{workload_type="two"} 1
# HELP apiserver_workload_partitioning_pods_total [ALPHA] Number of created pods that asked for a workload type, by what became of them and why.
# TYPE apiserver_workload_partitioning_pods_total counter
apiserver_workload_partitioning_pods_total{outcome="partitioned",reason="",workload_type="management"} 2
apiserver_workload_partitioning_pods_total{outcome="refused",reason="invalid_target",workload_type="other"} 1
apiserver_workload_partitioning_pods_total{outcome="skipped",reason="type_inactive",workload_type="other"} 3
# HELP apiserver_workload_partitioning_unlatched [ALPHA] Whether a workload type is active and could not be written to the annotation of kube-system that keeps it so.
# TYPE apiserver_workload_partitioning_unlatched gauge
apiserver_workload_partitioning_unlatched{workload_type="management"} 0
apiserver_workload_partitioning_unlatched{workload_type="two"} 0
`), "apiserver_workload_partitioning_active", "apiserver_workload_partitioning_nodes_missing", "apiserver_workload_partitioning_pods_total", "apiserver_workload_partitioning_unlatched"); err != nil {
		t.Error(err)
	}
}

// What each run decides may change with the next; no pod counts twice, nor a dry run at all.
func TestAPodIsCountedOnceWithItsLastDecision(t *testing.T) {
	p, _ := start(t, node("a", "management"), namespace("kube-system", "", ""), namespace("open", partition.AllowedAnnotation, "management"))
	eventually(t, "the type is active", func() bool { return p.activation.Active("management") })
	asks := func(pod *core.Pod) { pod.Annotations = map[string]string{managementTarget: ""} }
	guaranteed := func(pod *core.Pod) {
		pod.Spec.Containers[0].Resources.Limits = pod.Spec.Containers[0].Resources.Requests.DeepCopy()
	}
	inject := func(pod *core.Pod) {
		sidecar := *newPod(nil).Spec.Containers[0].DeepCopy()
		sidecar.Name = "sidecar"
		pod.Spec.Containers = append(pod.Spec.Containers, sidecar)
	}
	nothing := func(*core.Pod) {}
	for name, test := range map[string]struct {
		build   []func(*core.Pod)
		webhook func(*core.Pod)
		want    string
	}{
		"it asks":                {[]func(*core.Pod){asks}, nothing, "partitioned "},
		"a webhook makes it ask": {nil, asks, "partitioned "},
		"a webhook makes it Guaranteed": {[]func(*core.Pod){asks}, func(pod *core.Pod) {
			r := &pod.Spec.Containers[0].Resources
			r.Limits[core.ResourceMemory] = r.Requests[core.ResourceMemory]
			pod.Annotations[partition.ResourcesPrefix+"c"] = `{"cpushares":400,"cpulimit":400}`
		}, "skipped guaranteed"},
		"a Guaranteed pod, and nothing more": {[]func(*core.Pod){asks, guaranteed}, nothing, "skipped guaranteed"},
		"a Guaranteed pod, and a sidecar":    {[]func(*core.Pod){asks, guaranteed}, inject, "partitioned "},
		"a webhook takes the target":         {[]func(*core.Pod){asks}, func(pod *core.Pod) { delete(pod.Annotations, managementTarget) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			legacyregistry.Reset()
			pod := newPod(nil)
			for _, change := range test.build {
				change(pod)
			}
			told, err := createAs(t, p, pod, "open", nil, test.webhook)
			if err != nil {
				t.Fatal(err)
			}
			outcome, reason, _ := strings.Cut(test.want, " ")
			if got := counted(t); (test.want == "" && len(got) > 0) || (test.want != "" && (len(got) != 1 || got["management "+test.want] != 1)) {
				t.Errorf("counted %v, want one of %q", got, test.want)
			}
			if (len(told) > 0) != (outcome != "partitioned") || (reason != "" && !strings.Contains(strings.Join(told, ""), "Guaranteed")) {
				t.Errorf("told %q", told)
			}
			if _, has := pod.Spec.Containers[0].Resources.Requests["management.workload.openshift.io/cores"]; has != (outcome == "partitioned") {
				t.Errorf("the pod is %v", pod.Spec.Containers)
			}
			if cpu := pod.Spec.Containers[0].Resources.Requests[core.ResourceCPU]; outcome != "partitioned" && cpu.MilliValue() != 400 {
				t.Errorf("the pod is %v", pod.Spec.Containers)
			}
		})
	}
	legacyregistry.Reset()
	pod := newPod(map[string]string{managementTarget: ""})
	dry := admission.NewAttributesRecord(pod, nil, core.Kind("Pod").WithVersion("version"), "open", "", core.Resource("pods").WithVersion("version"), "", admission.Create, nil, true, nil)
	if err := p.Admit(t.Context(), dry, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(t.Context(), dry, nil); err != nil || len(counted(t)) > 0 {
		t.Errorf("a dry run: %v, counted %v", err, counted(t))
	}
}

// counted returns the counter of pods by type, outcome and reason.
func counted(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "apiserver_workload_partitioning_pods_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			counts[labels["workload_type"]+" "+labels["outcome"]+" "+labels["reason"]] = metric.GetCounter().GetValue()
		}
	}
	return counts
}
