package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/partition"
)

// oneContainer is a static pod's manifest; extra is part of its spec.
func oneContainer(name, annotations, resources, extra string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
  annotations:
%sspec:
  terminationGracePeriodSeconds: 1
%s
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, args: [-c, %q], resources: %s}
`, name, annotations, extra, image.Busybox, awake, resources)
}

func TestStaticPodsThatCannotBePartitionedRunAllTheSame(t *testing.T) {
	in(t)
	c := partitioned(t)
	const burstable = "{requests: {cpu: 50m, memory: 16Mi}}"
	const hard = `{"effect": "RequiredDuringScheduling"}`
	tests := map[string]struct{ annotations, resources, extra, reason string }{
		"guaranteed":      {target("management", ""), "{requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 50m, memory: 16Mi}}", "", "guaranteed"},
		"guaranteed-hard": {target("management", hard), "{limits: {cpu: 50m, memory: 16Mi}}", "", "guaranteed"},
		"qos-change":      {target("management", ""), "{requests: {cpu: 50m}}", "", "qos_change"},
		"pod-level":       {target("management", ""), burstable, "  resources: {requests: {cpu: 80m}}", "pod_level_cpu"},
		"pod-level-hard":  {target("management", hard), burstable, "  resources: {requests: {cpu: 80m}}", "pod_level_cpu"},
		"broken-json":     {target("management", "{"), burstable, "", "invalid_target"},
		"unknown-effect":  {target("management", `{"effect": "Sometimes"}`), burstable, "", "invalid_target"},
		"two-targets":     {target("management", "") + target("other", ""), burstable, "", "invalid_target"},
		"unknown-type":    {target("other", hard), burstable, "", "type_inactive"},
	}
	const counter = "kubelet_workload_partitioning_static_pods_skipped_total"
	before, skipped, manifests := map[string]float64{}, map[string]float64{}, map[string]string{}
	for name, test := range tests {
		before[test.reason] = metric(t, c, counter, "reason", test.reason)
		skipped[test.reason]++
		manifests[name] = oneContainer(name, test.annotations, test.resources, test.extra)
	}
	writeStaticPods(t, c, manifests)
	for name := range tests {
		t.Run(name, func(t *testing.T) {
			p := awaitRunning(t, c, "default", name+"-"+host.NodeName)
			warning := p.Annotations[partition.WarningAnnotation]
			if warning == "" || p.Annotations[managementTarget] != "" || p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 50 {
				t.Errorf("the pod has annotations %v and requests %v", p.Annotations, p.Spec.Containers[0].Resources.Requests)
			}
			expectNoLeak(t, p)
			awaitEvent(t, c, "StaticPodNotPartitioned", "Static pod default/"+name+": "+warning)
			log, err := os.ReadFile(c.Kubelet.Log())
			if line := fmt.Sprintf("Static pod runs as an ordinary pod\" pod=%q", "default/"+name); err != nil || strings.Count(string(log), line) != 1 {
				t.Errorf("the log has %d lines with %s, want one (%v)", strings.Count(string(log), line), line, err)
			}
		})
	}
	for reason, want := range skipped {
		if counted := metric(t, c, counter, "reason", reason) - before[reason]; counted != want {
			t.Errorf("%v static pods were counted as %s, want %v", counted, reason, want)
		}
	}
}

// What is edited on disk is rewritten again, and its mirror pod is made once.
func TestEditedStaticPodsArePartitionedAgain(t *testing.T) {
	in(t)
	c := partitioned(t)
	const name = "edited"
	manifest := func(cpu, annotations string) string {
		return oneContainer(name, annotations, "{requests: {cpu: "+cpu+", memory: 16Mi}}", "")
	}
	writeStaticPod(t, c, name, manifest("100m", target("management", "")))
	settled := func(t *testing.T, partitioned bool, millicores int64) *v1.Pod {
		t.Helper()
		var p *v1.Pod
		waitFor(t, time.Minute, "the pod is as the manifest has it", func() error {
			var err error
			if p, err = c.Client.CoreV1().Pods("default").Get(t.Context(), name+"-"+host.NodeName, metav1.GetOptions{}); err != nil {
				return err
			}
			request, is := p.Spec.Containers[0].Resources.Requests[cores]
			if !is {
				request = *resource.NewQuantity(p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(), resource.DecimalSI)
			}
			if p.Status.Phase != v1.PodRunning || is != partitioned || request.Value() != millicores {
				return fmt.Errorf("phase %s, %v, annotations %v", p.Status.Phase, p.Spec.Containers[0].Resources, p.Annotations)
			}
			return nil
		})
		expectNoLeak(t, p)
		return p
	}
	edit := func(content string) {
		if err := os.WriteFile(filepath.Join(host.ManifestDir, name+".yaml"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, true, 100)
	edit(manifest("200m", target("other", "")))
	settled(t, false, 200)
	edit(manifest("300m", target("management", "")))
	before := settled(t, true, 300)
	// The kubelet reads manifests every two seconds here, and syncs pods every ten.
	time.Sleep(12 * time.Second)
	after := settled(t, true, 300)
	if after.UID != before.UID {
		t.Error("the mirror pod was made again")
	}
	if before, after := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; after.ContainerID != before.ContainerID {
		t.Errorf("container %s was replaced by %s", before.ContainerID, after.ContainerID)
	}
}

// A URL is a second source of static pods.
func TestStaticPodsFromAURLArePartitioned(t *testing.T) {
	in(t)
	c := partitioned(t)
	// Kubernetes decodes JSON there, and a list is allowed.
	manifests := fmt.Sprintf(`{"apiVersion": "v1", "kind": "PodList", "items": [%s, %s]}`,
		asJSON(t, oneContainer("url-partitioned", target("management", ""), "{requests: {cpu: 400m, memory: 16Mi}}", "")),
		asJSON(t, oneContainer("url-skipped", target("other", ""), "{requests: {cpu: 100m, memory: 16Mi}}", "")))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, manifests) }))
	t.Cleanup(server.Close)
	c.Config.StaticPodURL = server.URL
	restart(t, c, pinning)
	t.Cleanup(func() {
		c.Config.StaticPodURL = ""
		restart(t, c, pinning)
	})
	p := awaitRunning(t, c, "default", "url-partitioned-"+host.NodeName)
	if request := p.Spec.Containers[0].Resources.Requests[cores]; request.Value() != 400 {
		t.Errorf("the pod has %v", p.Spec.Containers[0].Resources)
	}
	expectNoLeak(t, p)
	if usage, err := host.PodUsage(p); err != nil || usage.Weight != weight(409) {
		t.Errorf("the pod has weight %d (%v), want %d", usage.Weight, err, weight(409))
	}
	skipped := awaitRunning(t, c, "default", "url-skipped-"+host.NodeName)
	if skipped.Annotations[partition.WarningAnnotation] == "" {
		t.Errorf("the other pod has annotations %v", skipped.Annotations)
	}
	expectNoLeak(t, skipped)
}

func asJSON(t *testing.T, manifest string) string {
	t.Helper()
	data, err := yaml.ToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func target(workloadType, value string) string {
	return fmt.Sprintf("    target.workload.openshift.io/%s: '%s'\n", workloadType, value)
}
