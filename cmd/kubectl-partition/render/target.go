// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"workload.openshift.io/kubernetes/node/nodefiles"
)

// Target is what the files are for.
type Target string

// The targets.
const (
	Tree          Target = "tree"
	CloudInit     Target = "cloud-init"
	Kubeadm       Target = "kubeadm"
	MachineConfig Target = "machineconfig"
	Butane        Target = "butane"
)

// Targets are all of them, by what they make.
var Targets = map[Target]struct {
	// Summary says what is made.
	Summary string
	render  func(nodes []nodefiles.Node, o Options) (Rendered, error)
}{
	Tree:          {"the files of a node, in their directories", renderTree},
	CloudInit:     {"user data for cloud-init", renderCloudInit},
	Kubeadm:       {"configuration and patches for kubeadm, and the files of a node", renderKubeadm},
	MachineConfig: {"objects for OpenShift's machine-config operator", renderMachineConfig},
	Butane:        {"the source of a MachineConfig, or of an Ignition configuration", renderButane},
}

// Options are what some targets need besides the nodes.
type Options struct {
	// KubeAPIServerImage is the patched image, for kubeadm. Without it kubeadm's own remains.
	KubeAPIServerImage string
	// Variant is Butane's: openshift, which is the default, or fcos.
	Variant string
}

// Rendered is what a target made of nodes.
type Rendered struct {
	// Files have paths relative to wherever they are written.
	Files []nodefiles.File
	// Warnings are about the nodes as a group. Notes say what is left to do.
	Warnings, Notes []string
}

// Render renders nodes for a target. It returns an error if two nodes have the same role, or
// something of theirs cannot be said in the target's form.
func Render(target Target, nodes []nodefiles.Node, o Options) (Rendered, error) {
	t, known := Targets[target]
	if !known {
		var all []string
		for target := range Targets {
			all = append(all, string(target))
		}
		slices.Sort(all)
		return Rendered{}, fmt.Errorf("target %q: want one of %s", target, strings.Join(all, ", "))
	}
	roles := sets.New[string]()
	for _, node := range nodes {
		if roles.Has(node.Role) {
			return Rendered{}, fmt.Errorf("role %q is configured twice", node.Role)
		}
		roles.Insert(node.Role)
	}
	rendered, err := t.render(nodes, o)
	rendered.Warnings = append(rendered.Warnings, lackingTypes(nodes)...)
	return rendered, err
}

// lackingTypes warns of types that some roles have and others have not.
func lackingTypes(nodes []nodefiles.Node) (warnings []string) {
	for _, workloadType := range typesOf(nodes) {
		var lacking []string
		for _, node := range nodes {
			if _, has := node.Pools[workloadType]; !has {
				lacking = append(lacking, node.Role)
			}
		}
		if len(lacking) > 0 {
			warnings = append(warnings, fmt.Sprintf("Nodes of %s have no type %q. Its DaemonSet pods stay Pending there; an empty cpuset gives them cores, and confines nothing.", strings.Join(lacking, ", "), workloadType))
		}
	}
	return warnings
}

// typesOf returns the types that any node has, in alphabetical order.
func typesOf(nodes []nodefiles.Node) []string {
	types := sets.New[string]()
	for _, node := range nodes {
		types.Insert(node.Pools.Types()...)
	}
	return sets.List(types)
}

// fileSet are the files of a node that no installer is needed for.
type fileSet struct {
	// basic are the pinning file and CRI-O's drop-in.
	basic []nodefiles.File
	// kubelet is the kubelet's drop-in, and empty if there is none.
	kubelet []nodefiles.File
	// admission is kube-apiserver's configuration, and empty without a control plane.
	admission []nodefiles.File
	// host are those of HostFiles.
	host []nodefiles.File
	// grub has the kernel arguments for a host that boots by GRUB, and is empty if there are
	// none.
	grub []nodefiles.File
}

// filesOf returns a node's files. types are those that its kube-apiserver activates; without
// any, something else decides.
func filesOf(node nodefiles.Node, types []string) (files fileSet, err error) {
	pinning, err := node.PinningFile()
	if err != nil {
		return fileSet{}, err
	}
	crio, err := node.CRIODropIn()
	if err != nil {
		return fileSet{}, err
	}
	files.basic = []nodefiles.File{pinning, crio}
	if node.KubeletConfiguration() != nil {
		kubelet, err := node.KubeletDropIn()
		if err != nil {
			return fileSet{}, err
		}
		files.kubelet = []nodefiles.File{kubelet}
	}
	if node.ControlPlane() && len(types) > 0 {
		admission, err := AdmissionConfiguration(types)
		if err != nil {
			return fileSet{}, err
		}
		files.admission = []nodefiles.File{admission}
	}
	if files.host, err = node.HostFiles(); err != nil {
		return fileSet{}, err
	}
	if grub := node.GRUBDropIn(); len(grub.Content) > 0 {
		files.grub = []nodefiles.File{grub}
	}
	return files, nil
}

// all returns all files of a node.
func (f fileSet) all() []nodefiles.File {
	return slices.Concat(f.basic, f.kubelet, f.admission, f.host, f.grub)
}

// notes says what must be done once the files are there.
func (f fileSet) notes(node nodefiles.Node) (notes []string) {
	if len(f.kubelet) > 0 {
		notes = append(notes, "Start the kubelet with --config-dir="+nodefiles.KubeletDropInDirectory+".")
		notes = append(notes, kubeletNotes(node)...)
	}
	if len(f.admission) > 0 {
		notes = append(notes, "Start kube-apiserver with --admission-control-config-file="+AdmissionPath+". If it has such a file already, add the plugin's entry there.")
	}
	return append(notes, f.grubNote(node)...)
}

// kubeletNotes says what keeps a kubelet from starting with the configuration (upstream,
// pkg/kubelet/apis/config/validation, ValidateKubeletConfiguration, and
// pkg/kubelet/cm/cpumanager/state, state_checkpoint.go).
func kubeletNotes(node nodefiles.Node) (notes []string) {
	if node.CPUManagerPolicy != "" {
		notes = append(notes, fmt.Sprintf("A kubelet that has run with another cpuManagerPolicy does not start with %s: drain such a node, stop its kubelet, and delete cpu_manager_state in its root directory.", node.CPUManagerPolicy))
	}
	if node.Reserved().IsEmpty() {
		return notes
	}
	return append(notes, "The kubelet does not start with kubeReservedCgroup or systemReservedCgroup together with reservedSystemCPUs. If you have one of these, leave reservedSystemCPUs out: the patched kubelet reserves the pools by itself.")
}

func (f fileSet) grubNote(node nodefiles.Node) []string {
	if len(f.grub) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Kernel arguments take effect at the next boot. Run update-grub before it. Where GRUB does not read %s, give them to your boot loader, as in: grubby --update-kernel=ALL --args=%q", path.Dir(nodefiles.GRUBDropInPath), strings.Join(node.KernelArguments(), " "))}
}

func renderTree(nodes []nodefiles.Node, _ Options) (r Rendered, err error) {
	for _, node := range nodes {
		files, err := filesOf(node, typesOf(nodes))
		if err != nil {
			return Rendered{}, err
		}
		r.Files = append(r.Files, below(directoryOf(node, nodes), files.all())...)
		r.note(files.notes(node))
	}
	return r, nil
}

// note adds what was not said of another role.
func (r *Rendered) note(notes []string) {
	for _, note := range notes {
		if !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		}
	}
}

// directoryOf returns a directory for each role if there are several.
func directoryOf(node nodefiles.Node, nodes []nodefiles.Node) string {
	if len(nodes) == 1 {
		return ""
	}
	return node.Role
}

// below makes absolute paths relative to a directory of the output.
func below(directory string, files []nodefiles.File) []nodefiles.File {
	files = slices.Clone(files)
	for i := range files {
		files[i].Path = path.Join(directory, strings.TrimPrefix(files[i].Path, "/"))
	}
	return files
}
