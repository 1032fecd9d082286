// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

var olderBin = flag.String("older-bin", "", "directory of the patched kubelet of an older release; may be empty")

// In a cluster of two nodes, a type becomes active when both have it. It stays active while one
// node is drained and its kubelet upgraded.
func TestTypeIsActiveOnceBothNodesHaveIt(t *testing.T) {
	if *olderBin == "" {
		t.Skip("no binaries of an older release were given; make e2e-vm builds them")
	}
	older := *olderBin
	release := filepath.Base(filepath.Dir(older))
	topology := vm.Topology{Sockets: 1, Cores: 2, Threads: 1}
	// Each node has its own pool: what one node knows does not hold on the other.
	const pinning, secondPinning = `{"management": {"cpuset": "0"}}`, `{"management": {"cpuset": "1"}}`
	first := bootNode(t, pinning, vm.Config{Topology: topology, Memory: 4096}, host.Config{})
	active := func() bool {
		return partition.ListsType(fixture.Latched(t, first.client), "management")
	}
	waitFor(t, time.Minute, "the type is active with the first node alone", func(context.Context) error {
		if !active() {
			return errors.New("it is not in the latch")
		}
		return nil
	})
	second := &node{VM: boot(t, vm.Config{Number: 2, Topology: topology, Memory: 2048}), client: first.client}
	if err := second.Join(t.Context(), first.VM, host.Config{Kubelet: "/payload/older/kubelet"}); err != nil {
		t.Fatal(err)
	}
	fixture.RemoveLatch(t, first.client)
	namespace := fixture.Namespace(t, first.client, "management")
	create := func(name string, annotations map[string]string, node string) *v1.Pod {
		p := fixture.Pod(name, annotations, fixture.Container("c", fixture.Idle, "cpu=50m memory=16Mi", ""))
		p.Spec.NodeName = node
		created, err := first.client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	t.Run("one of two nodes lacks the type", func(t *testing.T) {
		time.Sleep(3 * time.Second) // the period in which it must not be latched
		if active() {
			t.Error("the type is active though a node lacks it")
		}
		if _, is := partition.PartitionedType(create("early", fixture.Asks("management"), "")); is {
			t.Error("a pod is partitioned though a node lacks the type")
		}
	})
	t.Run("both nodes have the type", func(t *testing.T) {
		second.writePinningFile(t, secondPinning)
		second.run(t, "systemctl restart kubelet")
		second.awaitReady(t, second.now(t))
		second.learn(t)
		waitFor(t, time.Minute, "the type is active", func(context.Context) error {
			if !active() {
				return errors.New("it is not in the latch")
			}
			return nil
		})
		if _, is := partition.PartitionedType(create("partitioned", asks, "")); !is {
			t.Error("a pod is not partitioned")
		}
	})
	t.Run("a node is drained and its kubelet upgraded", func(t *testing.T) {
		version := func() string {
			object, err := first.client.CoreV1().Nodes().Get(t.Context(), second.Name(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return object.Status.NodeInfo.KubeletVersion
		}
		if !strings.HasPrefix(version(), release) {
			t.Errorf("the kubelet has the version %s, want %s", version(), release)
		}
		kubectl := "/payload/bin/kubectl --kubeconfig " + host.Kubeconfig + " "
		first.run(t, kubectl+"drain "+second.Name()+" --ignore-daemonsets --force --timeout=120s")
		for i := range 3 {
			if _, is := partition.PartitionedType(create(fmt.Sprintf("meanwhile-%d", i), asks, "")); !is {
				t.Error("a pod is not partitioned while the node is drained")
			}
		}
		second.run(t, "sed -i 's|/payload/older/kubelet|/payload/bin/kubelet|' /etc/systemd/system/kubelet.service && systemctl daemon-reload && systemctl restart kubelet")
		// The old kubelet may have reported until now.
		second.awaitReady(t, second.now(t))
		if strings.HasPrefix(version(), release) {
			t.Errorf("the kubelet still has the version %s", version())
		}
		first.run(t, kubectl+"uncordon "+second.Name())
		p := create("upgraded", asks, second.Name())
		first.awaitRunning(t, 2*time.Minute)
		first.expectPlaced(t)
		second.expectPlaced(t)
		if _, is := partition.PartitionedType(p); !is || !active() {
			t.Error("the type is no longer active")
		}
	})
}
