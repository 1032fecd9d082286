// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/numaresources"
)

var scale = flag.Int("nodes", 0, "how many nodes TestReportsOfManyNodes has, each with four zones")

// What reports cost the companion and kube-apiserver. In each phase every node writes one report within a minute: five times as
// often as an exporter does at rest.
func TestReportsOfManyNodes(t *testing.T) {
	if *scale == 0 {
		t.Skip("it makes a thousand nodes, and takes minutes; make scheduler-test runs it")
	}
	const phase, pace = time.Minute, 16
	const few = 10 // for what it does once a minute whatever comes
	i := companiontest.Install(t, Name)
	api, err := kubernetes.NewForConfig(i.Config)
	if err != nil {
		t.Fatal(err)
	}
	reports := make([]*v1alpha2.NodeResourceTopology, *scale)
	// each calls a function for all nodes within a time, some at once.
	each := func(within time.Duration, do func(n int) error) {
		t.Helper()
		begun := time.Now()
		errs := make([]error, *scale)
		var group sync.WaitGroup
		for first := range pace {
			group.Go(func() {
				for n := first; n < *scale; n += pace {
					time.Sleep(time.Until(begun.Add(within * time.Duration(n) / time.Duration(*scale))))
					errs[n] = do(n)
				}
			})
		}
		group.Wait()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	each(0, func(n int) error {
		name := fmt.Sprintf("node-%d", n)
		reports[n] = &v1alpha2.NodeResourceTopology{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{numaresources.OwnerLabel: numaresources.Name}, Annotations: map[string]string{}},
			Attributes: running("single-numa-node", "container"),
		}
		for zone := range 4 {
			var resources v1alpha2.ResourceInfoList
			for _, name := range []string{"cpu", "memory", "hugepages-2Mi", "hugepages-1Gi", "example.com/nic"} {
				resources = append(resources, v1alpha2.ResourceInfo{Name: name, Capacity: resource.MustParse("16"), Allocatable: resource.MustParse("16"), Available: resource.MustParse("16")})
			}
			reports[n].Zones = append(reports[n].Zones, v1alpha2.Zone{Name: fmt.Sprintf("node-%d", zone), Type: "Node", Resources: resources})
		}
		if err := i.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", "pool": "a"}}}); err != nil {
			return err
		}
		beat(reports[n])
		return i.Client.Create(t.Context(), reports[n])
	})
	t.Cleanup(func() {
		i.Kubectl(t, "delete", "nodes,noderesourcetopologies.topology.node.k8s.io", "--all", "--wait=false")
	})
	write(t, i, nodetopologyv1.NodeGroup{NodeSelector: selecting("pool", "a")})
	process := i.Start(t, nil) // as in other tests, it looks for other managers three times a second
	condition(t, i, "NodesDiffer", metav1.ConditionFalse)
	condition(t, i, "Stale", metav1.ConditionFalse)

	for _, step := range []struct {
		name   string
		silent bool // whether the companion has nothing to write
		change func(*v1alpha2.NodeResourceTopology)
	}{
		{"nothing", true, nil},
		{"heartbeats", true, beat},
		{"reports of a pod that has come", true, func(report *v1alpha2.NodeResourceTopology) {
			beat(report)
			report.Zones[0].Resources[0].Available = resource.MustParse("12")
		}},
		{"reports of another policy", false, func(report *v1alpha2.NodeResourceTopology) {
			beat(report)
			report.Attributes = running("restricted", "container")
		}},
	} {
		began, cpu, served, before := time.Now(), process.CPU(t), serverCPU(t, api), written(t, i)
		if step.change != nil {
			each(phase, func(n int) error {
				step.change(reports[n])
				return i.Client.Update(t.Context(), reports[n])
			})
		} else {
			time.Sleep(phase)
		}
		took := time.Since(began)
		own, server := process.CPU(t)-cpu, serverCPU(t, api)-served
		writes := written(t, i)
		maps.DeleteFunc(writes, func(what string, count int) bool { return count == before[what] })
		for what := range writes {
			writes[what] -= before[what]
		}
		t.Logf("%d nodes, %s in %s: the companion %.1f m of a CPU, %d MiB, its writes %v; kube-apiserver %.1f m",
			*scale, step.name, took.Round(time.Second), 1000*own.Seconds()/took.Seconds(), process.Memory(t)>>20, writes, 1000*server.Seconds()/took.Seconds())
		total := 0
		for _, count := range writes {
			total += count
		}
		if step.silent && total > few {
			t.Errorf("%s: the companion has written %v", step.name, writes)
		}
	}
}

// beat gives a report the heartbeat of now.
func beat(report *v1alpha2.NodeResourceTopology) {
	report.Annotations[numaresources.HeartbeatAnnotation] = time.Now().UTC().Format(time.RFC3339)
}

// serverCPU is the CPU time that kube-apiserver has taken so far, by its own metrics.
func serverCPU(t *testing.T, api *kubernetes.Clientset) time.Duration {
	t.Helper()
	data, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte("process_cpu_seconds_total ")); ok {
			seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(seconds * float64(time.Second))
		}
	}
	t.Fatal("kube-apiserver does not say what CPU time it has taken")
	return 0
}

// written counts what the companion has written so far.
func written(t *testing.T, i *companiontest.Installed) map[string]int {
	t.Helper()
	count := map[string]int{}
	for user, requests := range i.Requests(t) {
		for request, times := range requests {
			if strings.HasPrefix(user, "system:serviceaccount:"+i.Namespace+":") && testenv.Writes(request) {
				count[request] += times
			}
		}
	}
	return count
}
