// SPDX-License-Identifier: Apache-2.0

// Package release knows which images and packages a release consists of, writes them into a
// directory, and checks such a directory. An Image says what is in one, Command is the usual one, and
// Write builds them.
package release

import (
	"fmt"
	"io/fs"
	"strings"

	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// Image says what is in an image.
type Image struct {
	// Name is the last element of the repository's name.
	Name               string
	Title, Description string
	// Programs are those of the image. The labels name the commit and the date of the first.
	Programs []Program
	// Base is one of the lock file's, or empty for none: then programs must be static.
	Base string
	// Files adds what is neither a program nor of the base; nil adds nothing.
	Files      func(*rootfs.Tree)
	Entrypoint []string
	// User is the number of the user that it runs as.
	User string
	// Labels are those that not all images have. LabelRevision is a further label that has the
	// commit.
	Labels        map[string]string
	LabelRevision string
}

// Program is a program of an image.
type Program struct {
	// Name is that of the file among the binaries.
	Name string
	// Path is where it is in the image.
	Path string
	// Capabilities is its extended attribute security.capability; empty means none.
	Capabilities string
	// Optional programs are left out if there is no binary.
	Optional bool
	// Compressed programs are in the image as gzip leaves them, and are not started there.
	Compressed bool
}

// Package is a program that is also there as a Debian package and as a tarball.
type Package struct {
	Name, Section, Summary string
	// Path is where it is in the tarball, as in upstream's.
	Path                string
	Depends, Recommends []string
	// Files adds what else is in the Debian package, and ConfigFiles are those of them that
	// belong to the administrator.
	Files       func(*rootfs.Tree)
	ConfigFiles []string
	Scripts     map[string]string
}

// component is a component's image as upstream has it: build/server-image/Dockerfile in a tree, and
// build/server-image/kube-apiserver/Dockerfile for the capability.
func component(name, capabilities, base string) Image {
	return Image{
		Name:        name,
		Title:       name,
		Description: name + " of Kubernetes, with workload partitioning",
		Programs:    []Program{{Name: name, Path: "usr/local/bin/" + name, Capabilities: capabilities}, {Name: "kube-log-runner", Path: "go-runner"}},
		Base:        base,
		Entrypoint:  []string{"/go-runner"},
		User:        "0",
	}
}

// Images are the images of a Kubernetes release, such as v1.37.0.
func Images(release string) []Image {
	return []Image{
		component("kube-apiserver", rootfs.NetBindService, ""),
		component("kube-controller-manager", "", ""),
		component("kube-proxy", "", "kube-proxy"),
		component("kube-scheduler", "", ""),
		kubectl(),
		hyperkube(release),
		Command("kubectl-partition", "kubectl plugin for workload partitioning"),
		Command("partition-controller", "companions of a partitioned cluster: the cluster's side"),
		// Its pods say which user it is on their node.
		Command("partition-agent", "companions of a partitioned cluster: the nodes' side, one step at a time"),
		Command("partition-node", "companions of a partitioned cluster: the nodes' side, daemons"),
		Command("topo-aware-scheduler", "scheduler that places pods by the NUMA nodes of nodes"),
		partitionTuned(),
		mustGather(),
	}
}

// mustGather is what oc adm must-gather starts: a pod with two containers of the image, of which one runs gather and the
// other waits until what it has written is copied. Both are commands of bash that call df, awk, sed, pkill, sleep and sync, and
// the copy is made by tar (openshift/oc, pkg/cli/admin/mustgather and pkg/cli/rsync). gzip is for those who look at the archive there.
func mustGather() Image {
	return Image{
		Name:        "partition-must-gather",
		Title:       "partition-must-gather",
		Description: "what oc adm must-gather starts to gather all about workload partitioning",
		Programs:    []Program{{Name: "kubectl-partition", Path: "usr/bin/kubectl-partition"}},
		Base:        "must-gather",
		Files: func(tree *rootfs.Tree) {
			tree.File("usr/bin/gather", 0o755, []byte("#!/bin/bash\nexec /usr/bin/kubectl-partition gather --to=/must-gather/workload-partitioning.tar.gz --force \"$@\"\n"))
		},
		Entrypoint: []string{"/usr/bin/gather"},
		User:       "0",
	}
}

// partitionTuned runs TuneD, which is Debian's, on nodes.
func partitionTuned() Image {
	return Image{
		Name:        "partition-tuned",
		Title:       "partition-tuned",
		Description: "companions of a partitioned cluster: TuneD on nodes",
		Programs:    []Program{{Name: "partition-node", Path: "usr/bin/partition-node"}},
		Base:        "tuned",
		Entrypoint:  []string{"/usr/bin/partition-node"},
		User:        "0",
	}
}

// kubectl is that image as upstream has it: build/server-image/kubectl/Dockerfile in a tree.
func kubectl() Image {
	return Image{
		Name:        "kubectl",
		Title:       "kubectl",
		Description: "kubectl of Kubernetes, of the same build as the components with workload partitioning",
		Programs:    []Program{{Name: "kubectl", Path: "bin/kubectl"}},
		Entrypoint:  []string{"/bin/kubectl"},
		User:        "0",
	}
}

// Command is the image of a command of this project: a static program, and a user without rights.
func Command(name, description string) Image {
	return Image{
		Name:        name,
		Title:       name,
		Description: description,
		Programs:    []Program{{Name: name, Path: "usr/bin/" + name}},
		Entrypoint:  []string{"/usr/bin/" + name},
		User:        "65532",
	}
}

// openshiftPrograms are those that OpenShift's static pods start through hyperkube.
var openshiftPrograms = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}

// hyperkubeName is that of the image and of its base, and hyperkubePath the script in it.
const (
	hyperkubeName = "hyperkube"
	hyperkubePath = "usr/bin/hyperkube"
)

// hyperkube is the image of that name in OpenShift's payload:
// openshift-hack/images/hyperkube/Dockerfile.rhel in openshift/kubernetes.
func hyperkube(release string) Image {
	image := Image{
		Name:        hyperkubeName,
		Title:       hyperkubeName,
		Description: "Kubernetes' components for OpenShift's payload, with workload partitioning",
		Base:        hyperkubeName,
		Files:       func(tree *rootfs.Tree) { tree.File(hyperkubePath, 0o755, []byte(hyperkubeScript())) },
		User:        "0",
		Labels: map[string]string{
			"io.k8s.display-name":         "OpenShift Kubernetes Server Commands",
			"io.k8s.description":          "OpenShift is a platform for developing, building, and deploying containerized applications.",
			"io.openshift.tags":           "openshift,hyperkube",
			"io.openshift.build.versions": "kubernetes=" + strings.TrimPrefix(release, "v"),
		},
		LabelRevision: "io.openshift.build.commit.id",
	}
	for _, name := range openshiftPrograms {
		image.Programs = append(image.Programs, Program{Name: name, Path: "usr/bin/" + name})
	}
	image.Programs = append(image.Programs, Program{Name: "watch-termination", Path: "usr/bin/watch-termination", Optional: true},
		// openshift-tests takes it out of this image, and ends if it cannot (openshift/origin, pkg/test/extensions/binary.go).
		Program{Name: "k8s-tests-ext", Path: "usr/bin/k8s-tests-ext.gz", Optional: true, Compressed: true})
	return image
}

// hyperkubeScript starts a component: OpenShift's static pods call "hyperkube kube-apiserver ...".
func hyperkubeScript() string {
	return fmt.Sprintf(`#!/bin/bash
case ${1:-} in
%s) exec "/usr/bin/$1" "${@:2}" ;;
esac
echo "hyperkube: unknown component \"${1:-}\"; known are %s" >&2
exit 1
`, strings.Join(openshiftPrograms, "|"), strings.Join(openshiftPrograms, ", "))
}

// Packages are those of a Kubernetes release, with the names, dependencies and files of upstream's
// own (cmd/krel/templates/latest in kubernetes/release).
func Packages() []Package {
	return []Package{
		{
			Name: "kubectl", Section: "admin", Path: "kubernetes/client/bin/kubectl",
			Summary: "Command-line utility for interacting with a Kubernetes cluster",
		},
		{
			Name: "kubelet", Section: "net", Path: "kubernetes/node/bin/kubelet",
			Summary:    "Node agent for Kubernetes clusters",
			Depends:    []string{"kubernetes-cni (>= 1.2.0)", "mount", "util-linux"},
			Recommends: []string{"iptables (>= 1.8.4)"},
			Files: func(tree *rootfs.Tree) {
				tree.File("usr/lib/systemd/system/kubelet.service", 0o644, []byte(kubeletService))
				tree.File("etc/default/kubelet", 0o644, []byte("KUBELET_EXTRA_ARGS=\n"))
				tree.Dir("etc/kubernetes/manifests", fs.FileMode(0o755))
				tree.Dir("var/lib/kubelet", fs.FileMode(0o755))
			},
			ConfigFiles: []string{"/etc/default/kubelet"},
			// The first installation enables the unit, unless a preset says otherwise or it is masked. An
			// upgrade does not restart the kubelet: that is for the administrator, after a drain. A systemd
			// that refuses keeps no package from being installed or removed.
			Scripts: map[string]string{
				"postinst": `#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" = configure ] && [ -z "$2" ] && command -v systemctl >/dev/null; then systemctl preset kubelet.service || true; fi
`,
				"prerm": `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop kubelet.service || true; fi
if [ "$1" = remove ] && command -v systemctl >/dev/null; then systemctl disable kubelet.service || true; fi
`,
				"postrm": "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi\n",
			},
		},
	}
}

// kubeletService is the unit that kubeadm's drop-in 10-kubeadm.conf extends.
const kubeletService = `[Unit]
Description=kubelet: the Kubernetes node agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
`
