// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// A static pod that cannot be partitioned runs as an ordinary pod, whatever its effect. Its
// annotation, an Event, a line of the log and a metric say why.
func TestStaticPodsThatCannotBePartitionedRunAllTheSame(t *testing.T) {
	in(t)
	c := partitioned(t)
	with := func(annotations map[string]string, requests, limits string) *v1.Pod {
		return staticPod("", annotations, fixture.Awake, requests, limits)
	}
	podLevel := func(p *v1.Pod) *v1.Pod {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: fixture.Resources("cpu=80m")}
		return p
	}
	target := func(value string) map[string]string { return map[string]string{managementTarget: value} }
	const burstable = "cpu=50m memory=16Mi"
	tests := map[string]struct {
		pod    *v1.Pod
		reason string
	}{
		"guaranteed":      {with(asks, burstable, burstable), "guaranteed"},
		"guaranteed-hard": {with(target(hard), "", burstable), "guaranteed"},
		"qos-change":      {with(asks, "cpu=50m", ""), "qos_change"},
		"pod-level":       {podLevel(with(asks, burstable, "")), "pod_level_cpu"},
		"pod-level-hard":  {podLevel(with(target(hard), burstable, "")), "pod_level_cpu"},
		"broken-json":     {with(target("{"), burstable, ""), "invalid_target"},
		"unknown-effect":  {with(target(`{"effect": "Sometimes"}`), burstable, ""), "invalid_target"},
		"two-targets":     {with(map[string]string{managementTarget: "", partition.TargetAnnotation("other"): ""}, burstable, ""), "invalid_target"},
		"unknown-type":    {with(map[string]string{partition.TargetAnnotation("other"): hard}, burstable, ""), "type_inactive"},
	}
	const counter = "kubelet_workload_partitioning_static_pods_skipped_total"
	before, skipped := map[string]float64{}, map[string]float64{}
	var pods []*v1.Pod
	for name, test := range tests {
		before[test.reason] = metric(t, c, counter, "reason", test.reason)
		skipped[test.reason]++
		test.pod.Name = name
		pods = append(pods, test.pod)
	}
	writeStaticPods(t, c, pods...)
	for name := range tests {
		t.Run(name, func(t *testing.T) {
			p := awaitRunning(t, c, "default", name+"-"+host.NodeName)
			warning := p.Annotations[partition.WarningAnnotation]
			if warning == "" || p.Annotations[managementTarget] != "" || p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 50 {
				t.Errorf("the pod has the annotations %v and requests %v, want a warning and 50m", p.Annotations, p.Spec.Containers[0].Resources.Requests)
			}
			expectNoLeak(t, p, offPool(t))
			fixture.AwaitEvent(t, c.Client, eventLimit, "StaticPodNotPartitioned", "Static pod default/"+name+": "+warning)
			log, err := os.ReadFile(c.Kubelet.Log())
			if line := fmt.Sprintf("Static pod runs as an ordinary pod\" pod=%q", "default/"+name); err != nil || strings.Count(string(log), line) != 1 {
				t.Errorf("the log has %d lines with %s (%v), want one", strings.Count(string(log), line), line, err)
			}
		})
	}
	for reason, want := range skipped {
		if counted := metric(t, c, counter, "reason", reason) - before[reason]; counted != want {
			t.Errorf("%s counts %v static pods with the reason %s, want %v", counter, counted, reason, want)
		}
	}
}

// A static pod whose manifest was edited is partitioned again, or skipped. Its mirror pod and
// its container are replaced once.
func TestEditedStaticPodsArePartitionedAgain(t *testing.T) {
	in(t)
	c := partitioned(t)
	const name = "edited"
	build := func(annotations map[string]string, cpu string) *v1.Pod {
		return staticPod(name, annotations, fixture.Awake, "memory=16Mi cpu="+cpu, "")
	}
	writeStaticPods(t, c, build(asks, "100m"))
	settled := func(t *testing.T, partitioned bool, millicores int64) *v1.Pod {
		t.Helper()
		var p *v1.Pod
		waitFor(t, time.Minute, "the pod is as its manifest says", func() error {
			var err error
			if p, err = c.Client.CoreV1().Pods("default").Get(t.Context(), name+"-"+host.NodeName, metav1.GetOptions{}); err != nil {
				return err
			}
			request, is := p.Spec.Containers[0].Resources.Requests[cores]
			if !is {
				request = *resource.NewQuantity(p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(), resource.DecimalSI)
			}
			if p.Status.Phase != v1.PodRunning || is != partitioned || request.Value() != millicores {
				return fmt.Errorf("it is %s, with %v and the annotations %v", p.Status.Phase, p.Spec.Containers[0].Resources, p.Annotations)
			}
			return nil
		})
		may := offPool(t)
		if partitioned {
			may = onPool
		}
		expectNoLeak(t, p, may)
		return p
	}
	settled(t, true, 100)
	writeManifest(t, build(fixture.Asks("other"), "200m"))
	settled(t, false, 200)
	writeManifest(t, build(asks, "300m"))
	before := settled(t, true, 300)
	// The period in which nothing must be replaced again: the kubelet reads manifests every two
	// seconds here, and syncs pods every ten.
	time.Sleep(12 * time.Second)
	after := settled(t, true, 300)
	if after.UID != before.UID {
		t.Errorf("the mirror pod %s was replaced by %s", before.UID, after.UID)
	}
	if before, after := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; after.ContainerID != before.ContainerID {
		t.Errorf("container %s was replaced by %s", before.ContainerID, after.ContainerID)
	}
}

// Static pods from a URL are partitioned, or skipped, like those from files.
func TestStaticPodsFromAURLArePartitioned(t *testing.T) {
	in(t)
	c := partitioned(t)
	manifests, err := json.Marshal(v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{
		*staticPod("url-partitioned", asks, fixture.Awake, "cpu=400m memory=16Mi", ""),
		*staticPod("url-skipped", fixture.Asks("other"), fixture.Awake, "cpu=100m memory=16Mi", ""),
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(manifests) }))
	t.Cleanup(server.Close)
	c.Config.StaticPodURL = server.URL
	restart(t, c, pinning)
	t.Cleanup(func() {
		c.Config.StaticPodURL = ""
		restart(t, c, pinning)
	})
	p := awaitRunning(t, c, "default", "url-partitioned-"+host.NodeName)
	if request := p.Spec.Containers[0].Resources.Requests[cores]; request.Value() != 400 {
		t.Errorf("the pod has %v, want 400 cores", p.Spec.Containers[0].Resources)
	}
	expectNoLeak(t, p, onPool)
	if usage, err := host.PodUsage(p); err != nil || usage.Weight != weight(409) {
		t.Errorf("the pod has weight %d (%v), want %d", usage.Weight, err, weight(409))
	}
	skipped := awaitRunning(t, c, "default", "url-skipped-"+host.NodeName)
	if skipped.Annotations[partition.WarningAnnotation] == "" {
		t.Errorf("the pod that was skipped has the annotations %v, want a warning", skipped.Annotations)
	}
	expectNoLeak(t, skipped, offPool(t))
}

// A LimitRange with a maximum refuses containers without a limit of cpu, as kubeadm's static pods have them. LimitRanger
// gives an ordinary pod the maximum as its default, so its mirror is there; that of a partitioned pod must be, too.
func TestALimitRangeHidesNoStaticPod(t *testing.T) {
	in(t)
	c := partitioned(t)
	constrain(t, c, metav1.NamespaceDefault, &v1.LimitRangeItem{Max: fixture.Resources("cpu=1")}, nil)
	t.Cleanup(func() {
		if err := c.Client.CoreV1().LimitRanges(metav1.NamespaceDefault).Delete(cleanup(t), "of-cpu", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, 20*time.Second, "the LimitRange is in force", func() error {
		_, err := creating(t, c, metav1.NamespaceDefault)(fixture.Pod("probe", nil, fixture.Container("c", "true", "", "cpu=2")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("a pod with a limit of two CPUs got %v", err)
		}
		return nil
	})
	writeStaticPods(t, c, staticPod("seen", asks, fixture.Awake, "cpu=50m memory=16Mi", ""))
	p := awaitRunning(t, c, metav1.NamespaceDefault, "seen-"+host.NodeName)
	if of := p.Spec.Containers[0].Resources; of.Requests.Cpu().MilliValue() != 50 || of.Limits.Cpu().MilliValue() != 1000 || partition.CarriesCores(of.Requests) {
		t.Errorf("the mirror pod has %v, want it counted by its cpu", of)
	}
	// The static pod itself is partitioned all the same.
	expectPlaced(t, p, cpuset.New(0))
}
