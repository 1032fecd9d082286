// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// A patched and an unpatched control plane run side by side, and the end of one leaves nothing
// of it, and the other as it was.
func TestControlPlanesRunSideBySide(t *testing.T) {
	in(t, long, unpatchedBinaries)
	patched := apiServer(t)
	with := config.Beside(1)
	with.APIServer = filepath.Join(upstreamBin, "kube-apiserver")
	unpatched := up(t, with)
	before := patched.APIServer.PID()
	processes := map[string]int{}
	for _, component := range []host.Component{unpatched.Etcd, unpatched.APIServer, unpatched.ControllerManager} {
		if processes[component.Name()] = component.PID(); processes[component.Name()] == 0 {
			t.Errorf("the second %s does not run", component.Name())
		}
	}
	t.Run("each has its own objects and its own admission", func(t *testing.T) {
		for name, c := range map[string]*host.Cluster{"patched": patched, "unpatched": unpatched} {
			namespace := fixture.Namespace(t, c.Client, "management")
			reportingNode(t, c, "only-"+name, "management")
			awaitActive(t, creating(t, c, namespace), c == patched)
		}
		for name, c := range map[string]*host.Cluster{"patched": unpatched, "unpatched": patched} {
			if _, err := c.Client.CoreV1().Nodes().Get(t.Context(), "only-"+name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the node of the %s control plane, asked for at the other: %v, want that it is not found", name, err)
			}
		}
	})
	if err := unpatched.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, pid := range processes {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("%s, process %d, has not ended: %v", name, pid, err)
		}
	}
	for _, path := range []string{with.Paths.Data, with.Paths.Run, "/sys/class/net/" + with.Network.Bridge} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left behind (%v)", path, err)
		}
	}
	for _, port := range []int{with.Ports.APIServer, with.Ports.Etcd, with.Ports.EtcdPeer, with.Ports.ControllerManager} {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			t.Errorf("port %d is still taken: %v", port, err)
			continue
		}
		listener.Close()
	}
	if now := patched.APIServer.PID(); now != before {
		t.Errorf("the first kube-apiserver is process %d, and was %d", now, before)
	}
	if _, err := patched.Client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{}); err != nil {
		t.Errorf("the first control plane, when the second has ended: %v", err)
	}
}
