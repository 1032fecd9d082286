// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/partition"
)

// write makes files below a directory.
func write(t *testing.T, directory string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const allocated = `{"data": "{\"entries\": {\"uid-a\": {\"ContainerResources\": {\"c\": {\"requests\": {\"cpu\": \"500m\"}}, \"d\": {\"requests\": {\"cpu\": \"1\"}}}}, \"uid-gone\": {\"ContainerResources\": {\"c\": {\"requests\": {\"cpu\": \"7\"}}}}}}", "checksum": 1}`

func TestHostIsReadAsTheKubeletReadsIt(t *testing.T) {
	root, logs := t.TempDir(), t.TempDir()
	write(t, root, map[string]string{kubeletstate.AllocatedName: allocated, "pods/uid-a/x": "", partition.RecordName: `{"reservedCPUs":"0"}`,
		"config.yaml": "cpuManagerPolicy: static\npodLogsDir: " + logs + "\ncontainerRuntimeEndpoint: unix://" + root + "/none.sock\n"})
	if err := os.Mkdir(filepath.Join(logs, "n_app_uid-a"), 0o755); err != nil {
		t.Fatal(err)
	}
	files := OnHost(root, filepath.Join(root, "config.yaml"))
	files.Present = filepath.Join(root, "none")
	var n Node
	if err := files.Read(&n); err != nil {
		t.Fatal(err)
	}
	if n.Online.IsEmpty() || !n.Present.Known || n.Present.Data != nil || n.Record.ReservedCPUs != "0" || n.Configuration.CPUManagerPolicy != "static" {
		t.Errorf("the node is %+v", n)
	}
	if n.Checkpoint == nil || !n.Checkpoint.IsNew() || n.Checkpoint.Damaged != "" {
		t.Errorf("a checkpoint that is not there yet is %+v", n.Checkpoint)
	}
	if len(n.Allocated) != 1 || n.Allocated["uid-a"] != 1500 || n.podName("uid-a") != "n/app" || n.podName("uid-x") != "uid-x" {
		t.Errorf("allocated are %v to %v", n.Allocated, n.Names)
	}
	files.Record = filepath.Join(root, "none")
	if err := files.Read(&n); err != nil || n.Record != nil || !n.NoRecord {
		t.Errorf("a record that is not there is %+v, looked for: %t (%v)", n.Record, n.NoRecord, err)
	}
	if got := n.runs("uid-a"); got != Maybe {
		t.Errorf("without a runtime the answer is %s, want %s", got, Maybe)
	}
}

// server is a runtime with one container, which runs.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (server) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}}, nil
}

// The kubelet takes the endpoint of its command line first, with a scheme or without.
func TestRuntimeIsAskedAtTheKubeletsEndpoint(t *testing.T) {
	root, err := os.MkdirTemp("", "") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) }) // a temporary directory
	socket := filepath.Join(root, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	running := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(running, server{})
	go func() { _ = running.Serve(listener) }() // until it is stopped
	t.Cleanup(running.Stop)
	for name, test := range map[string]struct{ config, flag string }{
		"of its configuration":                  {config: "unix://" + socket},
		"of its configuration, without scheme":  {config: socket},
		"of its command line":                   {config: "unix:///none", flag: "unix://" + socket},
		"of its command line, without a scheme": {config: "unix:///none", flag: socket},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			write(t, directory, map[string]string{"config.yaml": "containerRuntimeEndpoint: " + test.config})
			files := OnHost(directory, filepath.Join(directory, "config.yaml"))
			files.Endpoint, files.Changing = test.flag, "--reserved-cpus"
			var n Node
			if err := files.Read(&n); err != nil || n.Changing != "--reserved-cpus" {
				t.Fatalf("the flags are %q (%v)", n.Changing, err)
			}
			if got := n.runs("uid-a"); got != Yes {
				t.Errorf("the answer is %s, want %s", got, Yes)
			}
			if err := (Files{Configuration: filepath.Join(directory, "config.yaml")}).Read(&n); err != nil || n.Changing != "" {
				t.Errorf("with a file of what the kubelet uses, the flags are %q (%v)", n.Changing, err)
			}
		})
	}
}

// What others could replace keeps the kubelet from starting, whatever is in it, and whether it is
// there yet or not.
func TestPlaceOfThePinningFileIsChecked(t *testing.T) {
	for name, test := range map[string]struct {
		of   os.FileMode // of the directory
		file string
		want string
	}{
		"others can write the file":                            {0o755, "pinning", "lets users other than its owner write it"},
		"others can write the directory":                       {0o777, "strict", "lets users other than its owner replace the files in it"},
		"others can write the directory, and there is no file": {0o777, "none", "lets users other than its owner replace the files in it"},
		"there is no file":                                     {0o755, "none", ""},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			write(t, directory, map[string]string{"at/pinning": "{}", "at/strict": "{}", "config.yaml": "{}"})
			for path, mode := range map[string]os.FileMode{"at/pinning": 0o666, "at": test.of} {
				if err := os.Chmod(filepath.Join(directory, path), mode); err != nil {
					t.Fatal(err)
				}
			}
			files := OnHost(directory, filepath.Join(directory, "config.yaml"))
			files.Present = filepath.Join(directory, "at", test.file)
			var n Node
			if err := files.Read(&n); err != nil {
				t.Fatal(err)
			}
			if (n.Access != nil) != (test.want != "") || n.Access != nil && !strings.Contains(n.Access.Error(), test.want) {
				t.Errorf("the error is %v, want %q", n.Access, test.want)
			}
		})
	}
}

func TestDirectoryHasCopiesOfANodesFiles(t *testing.T) {
	directory := t.TempDir()
	write(t, directory, map[string]string{"online": "0-3\n", "isolated": "\n", "node.json": `{"metadata": {"name": "worker-1"}, "status": {"nodeInfo": {"kubeletVersion": "v1.34.4+wp.1"}}}`,
		"pods.json": `{"kind": "List", "items": [{"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "worker-1"}}, {"metadata": {"name": "b", "namespace": "n"}, "spec": {"nodeName": "worker-2"}}, {"metadata": {"name": "c", "namespace": "n"}}]}`})
	var n Node
	if err := InDirectory(directory).Read(&n); err != nil {
		t.Fatal(err)
	}
	if n.Name != "worker-1" || n.Online.String() != "0-3" || len(n.Pods) != 1 || n.release() != "1.34" {
		t.Errorf("the node is %+v", n)
	}
	if !n.Present.Known || n.Present.Data != nil || n.Checkpoint != nil || n.Configuration != nil || n.Record != nil {
		t.Errorf("what is not in the directory is %+v", n)
	}
	const kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	dropIns := map[string]string{"config.d/20.conf": kind + "cpuManagerPolicy: static\n", "config.d/10.conf": kind + "cpuManagerPolicy: x\n", "config.d/30.yaml": "podLogsDir: /x\n"}
	write(t, directory, dropIns)
	if err := InDirectory(directory).Read(&n); err != nil || n.Configuration != nil {
		t.Errorf("with drop-ins alone, of which the file may have been forgotten, the configuration is %+v (%v)", n.Configuration, err)
	}
	write(t, directory, map[string]string{"config.yaml": "cpuManagerPolicy: none\npodLogsDir: /logs\n"})
	if err := InDirectory(directory).Read(&n); err != nil || n.Configuration.CPUManagerPolicy != "static" || n.Configuration.PodLogsDir != "/logs" {
		t.Errorf("with drop-ins the configuration is %+v (%v)", n.Configuration, err)
	}
	if err := (Files{ConfigurationDir: filepath.Join(directory, "config.d")}).Read(&n); err != nil || n.Configuration.CPUManagerPolicy != "static" || n.Configuration.PodLogsDir != "" {
		t.Errorf("of a kubelet with drop-ins alone the configuration is %+v (%v)", n.Configuration, err)
	}
	for name, test := range map[string]struct{ file, content, want string }{
		"a Node's name that is none": {"node.json", `{"metadata": {"name": "$(rm)"}}`, `metadata.name "$(rm)" is not the name of a Node`},
		"pods of another node":       {"pods.json", `{"kind": "List", "items": [{"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "other"}}]}`, `none of the 1 pods is on node "worker-1"`},
		"CPUs that are none":         {"online", "x", `"x" is not a CPU`},
		"a drop-in that is none":     {"config.d/20.conf", "[", "did not find expected node content"},
		"a drop-in of another kind":  {"config.d/20.conf", "cpuManagerPolicy: static", `apiVersion "" and kind "": the kubelet does not start unless they are "kubelet.config.k8s.io/v1beta1" and "KubeletConfiguration"`},
		"no JSON":                    {kubeletstate.AllocatedName, "{", "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(directory)); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(copied, test.file)); err != nil {
				t.Fatal(err)
			}
			write(t, copied, map[string]string{test.file: test.content})
			var n Node
			if err := InDirectory(copied).Read(&n); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.file) {
				t.Errorf("the error is %v, want one with %s and %q", err, test.file, test.want)
			}
		})
	}
}
