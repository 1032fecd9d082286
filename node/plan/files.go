// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubelettypes "k8s.io/kubelet/pkg/types"
	"k8s.io/utils/cpuset"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/partition"
)

// Files are the paths of what a node has. A path that is empty is not read.
type Files struct {
	// Present is the pinning file, Checkpoint the CPU manager's, Record the kubelet's.
	Present, Checkpoint, Record string
	// Configuration is the kubelet's configuration (kubelet.config.k8s.io/v1beta1), and
	// ConfigurationDir the directory of its drop-ins. Both are read, or what there is of them.
	Configuration, ConfigurationDir string
	// Online and Isolated have CPU lists, as /sys/devices/system/cpu has them.
	Online, Isolated string
	// Boot has the boot ID of the host, as the Node has it.
	Boot string
	// Allocated is upstream's checkpoint of what is allocated to pods.
	Allocated string
	// Pods and Object are JSON or YAML of the API: a list of pods, and the Node.
	Pods, Object string
	// Root is the kubelet's root directory on this host: pods of which it has no directory do not
	// count in Allocated. It may be empty.
	Root string
	// Endpoint is the runtime's that overrides that of the configuration, with or without a
	// scheme; it may be empty. Changing are flags of the kubelet's command line by which it has
	// other settings than its configuration says, with commas between them.
	Endpoint, Changing string
	// OnHost means that a checkpoint that is not there is none yet. Elsewhere it may have been
	// forgotten.
	OnHost bool
}

// InDirectory returns the files of a directory with copies of a node's files; its config.d has the
// kubelet's drop-ins. Those that are not there are left out, but for the pinning file: a node
// without it has none.
func InDirectory(directory string) Files {
	at := func(name string) string {
		path := filepath.Join(directory, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		return path
	}
	f := Files{
		Present: filepath.Join(directory, filepath.Base(partition.PinningFilePath)), Checkpoint: at(kubeletstate.CheckpointName), Record: at(partition.RecordName),
		Configuration: at("config.yaml"), ConfigurationDir: at("config.d"), Online: at("online"), Isolated: at("isolated"), Allocated: at(kubeletstate.AllocatedName), Pods: at("pods.json"), Object: at("node.json"),
	}
	if f.Configuration == "" {
		f.ConfigurationDir = "" // the file is missing
	}
	return f
}

// OnHost returns the files of this host. root is the kubelet's root directory.
func OnHost(root, configuration string) Files {
	return Files{
		Present: partition.PinningFilePath, Checkpoint: filepath.Join(root, kubeletstate.CheckpointName), Record: filepath.Join(root, partition.RecordName),
		Configuration: configuration, Online: "/sys/devices/system/cpu/online", Isolated: "/sys/devices/system/cpu/isolated", Boot: "/proc/sys/kernel/random/boot_id",
		Allocated: filepath.Join(root, kubeletstate.AllocatedName), Root: root, OnHost: true,
	}
}

// Read reads the files, and sets what they say of the node. Everything else stays. An error names
// the file.
func (f Files) Read(n *Node) error {
	steps := []struct {
		path string
		read func([]byte) error
		// missing is called if there is no such file; nil makes that an error.
		missing func()
	}{
		{f.Online, func(data []byte) error { return readCPUs(data, &n.Online) }, nil},
		{f.Isolated, func(data []byte) error { return readCPUs(data, &n.Isolated) }, func() {}}, // older kernels lack it
		{f.Boot, func(data []byte) error { n.Boot = strings.TrimSpace(string(data)); return nil }, func() {}},
		{f.Present, func(data []byte) error { n.Present = There(data); return nil }, func() { n.Present = Absent() }},
		{f.Checkpoint, func(data []byte) error { n.Checkpoint = kubeletstate.ParseCheckpoint(data); return nil }, func() { n.Checkpoint = &kubeletstate.Checkpoint{} }},
		{f.Record, func(data []byte) (err error) {
			n.Record, err = kubeletstate.ParseRecord(data)
			n.NoRecord = false
			return err
		}, func() { n.Record, n.NoRecord = nil, true }},
		{f.Allocated, func(data []byte) (err error) { n.Allocated, err = kubeletstate.ParseAllocated(data); return err }, func() {}},
		{f.Object, func(data []byte) error { return readNode(data, n) }, nil},
		{f.Pods, func(data []byte) error { return readPods(data, n) }, nil},
	}
	for _, step := range steps {
		if step.path == "" {
			continue
		}
		data, err := os.ReadFile(step.path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && step.missing != nil:
			step.missing()
		case err != nil:
			return err
		default:
			if err := step.read(data); err != nil {
				return fmt.Errorf("%s: %w", step.path, err)
			}
		}
	}
	if f.Online != "" {
		n.OnlineCounted = false
	}
	if f.Configuration != "" || f.ConfigurationDir != "" {
		if err := f.readConfiguration(n); err != nil {
			return fmt.Errorf("kubelet configuration: %w", err)
		}
	}
	if f.OnHost {
		f.readHost(n)
	}
	return nil
}

func (f Files) readConfiguration(n *Node) (err error) {
	var data []byte
	if f.ConfigurationDir == "" {
		data, err = os.ReadFile(f.Configuration) // which may be a pipe
	} else {
		data, _, err = kubeletstate.Configuration(f.Configuration, f.ConfigurationDir)
	}
	if err != nil {
		return err
	}
	if n.Configuration, err = ParseConfiguration(data); err != nil {
		return fmt.Errorf("%s: %w", strings.Trim(f.Configuration+", "+f.ConfigurationDir, ", "), err)
	}
	n.InEffect, n.Changing = false, f.Changing
	return nil
}

func readCPUs(data []byte, cpus *cpuset.CPUSet) (err error) {
	*cpus, err = partition.ParseCPUs(strings.TrimSpace(string(data)))
	return err
}

// ParseConfiguration reads a kubelet's configuration. Fields that this package does not know are
// no error.
func ParseConfiguration(data []byte) (*kubeletconfig.KubeletConfiguration, error) {
	var configuration kubeletconfig.KubeletConfiguration
	if err := yaml.Unmarshal(data, &configuration); err != nil {
		return nil, err
	}
	if kind := configuration.Kind; kind != "" && kind != "KubeletConfiguration" {
		return nil, fmt.Errorf("kind %q is not KubeletConfiguration", kind)
	}
	// The core leaves the error to the kubelet, which counts CPUs of any number.
	if _, err := partition.ParseCPUs(configuration.ReservedSystemCPUs); err != nil {
		return nil, fmt.Errorf("reservedSystemCPUs %q: %w", configuration.ReservedSystemCPUs, err)
	}
	return &configuration, nil
}

func readNode(data []byte, n *Node) error {
	var object v1.Node
	if err := yaml.Unmarshal(data, &object); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(object.Name); len(problems) > 0 {
		return fmt.Errorf("metadata.name %q is not the name of a Node: %s", object.Name, problems[0])
	}
	n.Name, n.Object = object.Name, &object
	return nil
}

// readPods reads a list of pods. Anything else would look like a node without pods, on which every
// change is safe.
func readPods(data []byte, n *Node) error {
	var list v1.PodList
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	if err := documents.Decode(&list); err != nil {
		return err
	}
	if list.Kind != "List" && list.Kind != "PodList" {
		return fmt.Errorf("kind %q is neither List nor PodList, as kubectl get pods -o json prints it", list.Kind)
	}
	for {
		var more map[string]any
		if err := documents.Decode(&more); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if len(more) > 0 {
			return errors.New("there is more input after the list of pods; give one list")
		}
	}
	nodes := map[string]bool{}
	pods := []v1.Pod{}
	for _, p := range list.Items {
		if problems := append(validation.IsDNS1123Subdomain(p.Name), validation.IsDNS1123Label(p.Namespace)...); len(problems) > 0 {
			return fmt.Errorf("%q is not a pod's namespace and name: %s", nameOf(&p), problems[0])
		}
		if p.Spec.NodeName == "" || (n.Name != "" && p.Spec.NodeName != n.Name) {
			continue
		}
		if problems := validation.IsDNS1123Subdomain(p.Spec.NodeName); len(problems) > 0 {
			return fmt.Errorf("pod %s: spec.nodeName %q is not the name of a Node: %s", nameOf(&p), p.Spec.NodeName, problems[0])
		}
		nodes[p.Spec.NodeName] = true
		pods = append(pods, p)
	}
	if len(nodes) > 1 {
		return errors.New("the pods are those of several nodes; give only those of one (--field-selector spec.nodeName=NODE)")
	}
	if len(pods) == 0 && len(list.Items) > 0 {
		return fmt.Errorf("none of the %d pods is on node %q", len(list.Items), n.Name)
	}
	n.Pods = pods
	for name := range nodes {
		n.Name = name
	}
	return nil
}

// readHost reads what is not a single file: the names of pods, whether the kubelet accepts the place
// of the pinning file, and a way to ask the runtime.
func (f Files) readHost(n *Node) {
	if pools, _, err := partition.Load(f.Present, n.Online); err != nil && n.Present.Data != nil {
		if _, mistake := partition.Parse(n.Present.Data, n.Online); mistake == nil && pools == nil {
			n.Access = err
		}
	}
	if n.Present.Data == nil {
		if _, err := partition.CheckDirectories(f.Present); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.Access = fmt.Errorf("pinning file %s: %w", f.Present, err)
		}
	}
	n.Topology, _ = topology.Read(topology.Sysfs) // without it there are fewer warnings
	logs := "/var/log/pods"
	if n.Configuration != nil && n.Configuration.PodLogsDir != "" {
		logs = n.Configuration.PodLogsDir
	}
	n.Names = namesOfPods(logs)
	known := map[string]bool{}
	entries, _ := os.ReadDir(filepath.Join(f.Root, "pods")) // a new kubelet has none
	for _, entry := range entries {
		known[entry.Name()] = true
	}
	for uid := range n.Allocated {
		if !known[uid] {
			delete(n.Allocated, uid)
		}
	}
	if n.Configuration != nil {
		n.Runs = askRuntime(cmp.Or(f.Endpoint, n.Configuration.ContainerRuntimeEndpoint, defaultEndpoint))
	}
}

// namesOfPods returns namespace/name of the pods that have log directories, by UID
// (pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory).
func namesOfPods(logs string) map[string]string {
	names := map[string]string{}
	entries, _ := os.ReadDir(logs) // then they go by their UIDs
	for _, entry := range entries {
		if parts := strings.Split(entry.Name(), "_"); len(parts) == 3 {
			names[parts[2]] = parts[0] + "/" + parts[1]
		}
	}
	return names
}

// defaultEndpoint is the kubelet's (pkg/kubelet/apis/config/v1beta1/defaults.go).
const defaultEndpoint = "unix:///run/containerd/containerd.sock"

// runtimeTimeout is how long the runtime has for an answer.
const runtimeTimeout = 5 * time.Second

// askRuntime returns a function that asks the runtime as the kubelet does: a container that is not
// known to have ended may run (managed, mayRun). A runtime that does not answer gives Maybe.
func askRuntime(endpoint string) func(uid string) Answer {
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix://" + endpoint
	}
	answers := map[string]Answer{}
	ask := func(uid string) Answer {
		connection, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return Maybe
		}
		defer connection.Close()
		ctx, cancel := context.WithTimeout(context.Background(), runtimeTimeout)
		defer cancel()
		list, err := runtimeapi.NewRuntimeServiceClient(connection).ListContainers(ctx, &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{kubelettypes.KubernetesPodUIDLabel: uid}}})
		if err != nil {
			return Maybe
		}
		if slices.ContainsFunc(list.Containers, func(c *runtimeapi.Container) bool {
			return c.State != runtimeapi.ContainerState_CONTAINER_EXITED
		}) {
			return Yes
		}
		return No
	}
	return func(uid string) Answer {
		if _, asked := answers[uid]; !asked {
			answers[uid] = ask(uid)
		}
		return answers[uid]
	}
}
