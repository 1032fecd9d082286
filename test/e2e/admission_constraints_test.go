// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// constraints are what a namespace may require of a pod's cpu.
var constraints = map[string]struct {
	limits *v1.LimitRangeItem
	quota  *v1.ResourceQuotaSpec
	// zero means that a partitioned pod has a request of zero there.
	zero bool
	// refuses is what upstream says of a pod without cpu. Empty means that it accepts the pod.
	refuses string
}{
	"LimitRange with defaults":                   {limits: &v1.LimitRangeItem{Default: fixture.Resources("cpu=2"), DefaultRequest: fixture.Resources("cpu=100m")}},
	"LimitRange with a minimum":                  {limits: &v1.LimitRangeItem{Min: fixture.Resources("cpu=50m")}, refuses: "minimum cpu usage per Container is 50m"},
	"LimitRange with a maximum":                  {limits: &v1.LimitRangeItem{Max: fixture.Resources("cpu=4")}, refuses: "maximum cpu usage per Container is 4"},
	"LimitRange with a ratio":                    {limits: &v1.LimitRangeItem{MaxLimitRequestRatio: fixture.Resources("cpu=10")}, refuses: "cpu max limit to request ratio"},
	"quota of cpu":                               {quota: &v1.ResourceQuotaSpec{Hard: fixture.Resources("cpu=10")}, zero: true},
	"quota of requests":                          {quota: &v1.ResourceQuotaSpec{Hard: fixture.Resources("requests.cpu=10")}, zero: true},
	"quota of limits":                            {quota: &v1.ResourceQuotaSpec{Hard: fixture.Resources("limits.cpu=10")}, refuses: "must specify limits.cpu for: c"},
	"quota of limits whose scope matches":        {quota: &v1.ResourceQuotaSpec{Hard: fixture.Resources("limits.cpu=10"), Scopes: []v1.ResourceQuotaScope{v1.ResourceQuotaScopeNotBestEffort}}, refuses: "must specify limits.cpu for: c"},
	"quota of limits whose scope does not match": {quota: &v1.ResourceQuotaSpec{Hard: fixture.Resources("limits.cpu=10"), Scopes: []v1.ResourceQuotaScope{v1.ResourceQuotaScopeTerminating}}},
}

// Where a namespace would refuse a pod without cpu, the pod is skipped, and its author is
// warned. Mirror pods are created in every namespace, and are counted once.
func TestConstraintsRefuseNoPodForItsMissingCPU(t *testing.T) {
	in(t, core)
	c, _ := activeType(t)
	for name, test := range constraints {
		t.Run(name, func(t *testing.T) {
			namespace := fixture.Namespace(t, c.Client, "management")
			constrain(t, c, namespace, test.limits, test.quota)
			build := func() *v1.Pod {
				return fixture.Pod("", asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", "cpu=500m"))
			}
			partitioned := func(p *v1.Pod) bool { _, is := partition.PartitionedType(p); return is }
			var p *v1.Pod
			var warned []string
			// kube-apiserver takes a moment to see a LimitRange.
			waitFor(t, 20*time.Second, "the constraint is in force", func() (err error) {
				if p, warned, err = send(t, namespace, build(), "dry run"); err == nil && partitioned(p) != (test.refuses == "") {
					err = fmt.Errorf("the pod has the annotations %v", p.Annotations)
				}
				return err
			})
			requests := p.Spec.Containers[0].Resources.Requests
			if _, has := requests[v1.ResourceCPU]; test.refuses == "" && (has != test.zero || !requests.Cpu().IsZero() || len(warned) > 0) {
				t.Errorf("the pod requests %v, want a cpu of zero: %v; its author was warned with %q", requests, test.zero, warned)
			}
			if said := strings.Join(warned, ""); test.refuses != "" && (!strings.Contains(said, test.refuses) || !strings.Contains(said, `"of-cpu"`) || said != p.Annotations[partition.WarningAnnotation] || requests.Cpu().MilliValue() != 400) {
				t.Errorf("the pod requests %v, want 400m; its author was warned with %q, want %q and the name of the object", requests, warned, test.refuses)
			}
			if test.refuses != "" {
				p := build()
				p.Annotations[managementTarget] = hard
				if _, _, err := send(t, namespace, p, "create"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"of-cpu"`) {
					t.Errorf("a pod with the hard effect got %v, want 403 with the name of the object", err)
				}
			}
			// Not as a dry run, so that the quota decides, too.
			if _, _, err := send(t, namespace, build(), "create"); err != nil {
				t.Error(err)
			}
			mirror, err := sendMirror(t, c, namespace)
			if err != nil {
				t.Fatal(err)
			}
			of := mirror.Spec.Containers[0].Resources
			request := of.Requests[cores]
			if byCores := test.refuses == ""; byCores != (request.Value() == 400) || byCores != of.Requests.Cpu().IsZero() || (!byCores && of.Requests.Cpu().MilliValue() != 400) || (byCores && !of.Limits.Cpu().IsZero()) {
				t.Errorf("the mirror pod has %v, want it counted once, by its cores (%v) or else by its cpu", of, byCores)
			}
		})
	}
}

// A ResourceQuota counts cores like any extended resource.
func TestQuotasCountCores(t *testing.T) {
	in(t)
	c, namespace := activeType(t)
	build := func(name string) *v1.Pod {
		return fixture.Pod(name, asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", ""), fixture.Container("d", "true", "memory=16Mi", ""))
	}
	name := v1.ResourceName("requests." + string(cores))
	if _, err := c.Client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "cores"}, Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{name: resource.MustParse("1000")}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	used := func(want int64) {
		t.Helper()
		waitFor(t, 20*time.Second, fmt.Sprintf("the quota counts %d", want), func() error {
			quota, err := c.Client.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "cores", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got, has := quota.Status.Used[name]; !has || got.Value() != want {
				return fmt.Errorf("it counts %v", quota.Status.Used)
			}
			return nil
		})
	}
	used(0)
	for i, want := range []int64{400, 800} {
		if _, err := creating(t, c, namespace)(build(fmt.Sprintf("p-%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		used(want)
	}
	const series = `apiserver_workload_partitioning_pods_total{outcome="partitioned",reason="",workload_type="management"}`
	before := podSeries(t, c)[series]
	if _, err := creating(t, c, namespace)(build("too-many"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("a pod that exceeds the quota got %v, want 403", err)
	}
	// What a later plugin refuses was decided on.
	if counted := podSeries(t, c)[series] - before; counted != 1 {
		t.Errorf("a pod that exceeds the quota is counted %v times, want once", counted)
	}
}

// A LimitRange of cores makes no partitioned pod of one that does not ask, and bounds those that do.
func TestALimitRangeOfCoresTakesNobodysCPU(t *testing.T) {
	in(t)
	c, namespace := activeType(t)
	guaranteed := fixture.Pod("guaranteed", nil, fixture.Container("c", "true", "cpu=400m memory=16Mi", "cpu=400m memory=16Mi"))
	small, large := fixture.Pod("small", asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", "")), fixture.Pod("large", asks, fixture.Container("c", "true", "cpu=900m memory=16Mi", ""))
	check := func(p *v1.Pod, wantCPU, wantCores string) {
		t.Helper()
		p, _, err := send(t, namespace, p, "dry run")
		if err != nil {
			t.Error(err)
			return
		}
		requests := p.Spec.Containers[0].Resources.Requests
		if of := requests[cores]; requests.Cpu().String() != wantCPU || of.String() != wantCores {
			t.Errorf("pod %s requests %v, want cpu %s and cores %s", p.Name, requests, wantCPU, wantCores)
		}
	}
	inForce := func(accepts bool) {
		t.Helper()
		waitFor(t, 20*time.Second, "the LimitRange is in force", func() error {
			if _, _, err := send(t, namespace, large.DeepCopy(), "dry run"); (err == nil) != accepts {
				return fmt.Errorf("a pod with 900 cores got %v", err)
			}
			return nil
		})
	}
	constrain(t, c, namespace, &v1.LimitRangeItem{Max: fixture.Resources(string(cores) + "=500")}, nil)
	inForce(false)
	check(small, "0", "400")
	if _, _, err := send(t, namespace, guaranteed.DeepCopy(), "dry run"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "No limit is specified") {
		t.Errorf("a pod without cores got %v, want upstream's 403", err)
	}
	if err := c.Client.CoreV1().LimitRanges(namespace).Delete(t.Context(), "of-cpu", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	inForce(true)
	constrain(t, c, namespace, &v1.LimitRangeItem{Default: fixture.Resources(string(cores) + "=100")}, nil)
	idle := fixture.Pod("idle", asks, fixture.Container("c", "true", "memory=16Mi", ""))
	waitFor(t, 20*time.Second, "the default is in force", func() error {
		p, _, err := send(t, namespace, idle.DeepCopy(), "dry run")
		if err == nil && !strings.Contains(p.Annotations["kubernetes.io/limit-ranger"], string(cores)) {
			err = fmt.Errorf("LimitRanger says %q", p.Annotations["kubernetes.io/limit-ranger"])
		}
		return err
	})
	check(idle, "0", "0")
	check(fixture.Pod("best-effort", map[string]string{managementTarget: hard}, fixture.Container("c", "true", "", "")), "0", "0")
	check(fixture.Pod("copy", nil, fixture.Container("c", "true", string(cores)+"=100", string(cores)+"=100")), "100m", "0")
	check(guaranteed, "400m", "0")
	check(small, "0", "400")
	check(large, "0", "900")
	for _, p := range []*v1.Pod{guaranteed, small} {
		p, _, err := send(t, namespace, p.DeepCopy(), "")
		if err != nil {
			t.Fatal(err)
		}
		patch := `{"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "17Mi"}, "limits": {"memory": "17Mi"}}}]}}`
		if _, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"); err != nil {
			t.Errorf("a resize of the memory of pod %s got %v", p.Name, err)
		}
	}
}

// constrain gives a namespace a LimitRange or a ResourceQuota, of the name of-cpu. Either may
// be nil.
func constrain(t *testing.T, c *host.Cluster, namespace string, limits *v1.LimitRangeItem, quota *v1.ResourceQuotaSpec) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "of-cpu"}
	if limits != nil {
		item := *limits
		item.Type = v1.LimitTypeContainer
		if _, err := c.Client.CoreV1().LimitRanges(namespace).Create(t.Context(), &v1.LimitRange{ObjectMeta: meta, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{item}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if quota == nil {
		return
	}
	if _, err := c.Client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), &v1.ResourceQuota{ObjectMeta: meta, Spec: *quota}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 20*time.Second, "the quota is in force", func() error {
		q, err := c.Client.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "of-cpu", metav1.GetOptions{})
		if err == nil && len(q.Status.Used) == 0 {
			err = fmt.Errorf("its status is %v", q.Status)
		}
		return err
	})
}

// sendMirror creates the mirror pod of a partitioned static pod, as the kubelet of the node
// reporting would.
func sendMirror(t *testing.T, c *host.Cluster, namespace string) (*v1.Pod, error) {
	t.Helper()
	config := clientConfig(t, "")
	config.Impersonate.UserName, config.Impersonate.Groups = "system:node:reporting", []string{"system:nodes", "system:authenticated"}
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), "reporting", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := fixture.Partitioned(fixture.Pod("static-reporting", asks, fixture.Container("c", "true", "cpu=400m memory=16Mi", "cpu=500m")))
	p.Annotations[v1.MirrorPodAnnotationKey], p.Annotations["kubernetes.io/config.source"] = "hash", "file"
	p.Spec.NodeName = "reporting"
	yes, no := true, false
	p.Spec.AutomountServiceAccountToken = &no
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &yes}}
	return clientFor(t, config).CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
}
