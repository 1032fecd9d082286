// SPDX-License-Identifier: Apache-2.0

// Package agentpod is the pod of the companion cpupolicy that works on a node: what it runs, and what
// it may do there. docs/dev/cpupolicy.md lists its privileges. The package must not know how the agent
// does its part.
package agentpod

import (
	corev1 "k8s.io/api/core/v1"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

const (
	// HostRoot is where the pod has what it needs of the host's root directory.
	HostRoot = "/host"
	// ServiceAccount is that of the pod, which has no rights, in the namespace of the agent.
	ServiceAccount = "partition-agent"
	// Container is the name of the pod's only container. Its termination message is the result,
	// or the observation.
	Container = "partition-agent"
)

const terminationLog = "/dev/termination-log"

// Run returns the pod that carries out a request on a node. Its termination message is an
// [operation.Result]. The error is about the request.
func Run(node, image string, request operation.Request) (corev1.PodSpec, error) {
	encoded, err := request.Encode()
	if err != nil {
		return corev1.PodSpec{}, err
	}
	return stepsOf(node, image, request.Driver, "run", "--request="+string(encoded)), nil
}

// Settle returns the pod that has an operation end on a node, and never begins it. Its termination message is an
// [operation.Result].
func Settle(node, image string, driver operation.Driver, id string) corev1.PodSpec {
	return stepsOf(node, image, driver, "settle", "--operation="+id)
}

// stepsOf returns a pod that may do the steps of an operation, or have them done.
func stepsOf(node, image string, driver operation.Driver, command string, args ...string) corev1.PodSpec {
	pod := podOf(node, image, command, args...)
	if driver == operation.DriverCommand {
		allowCommands(&pod)
		return pod
	}
	// Its directory: the program, the journal and the lock. The agent gives it the mode 0700.
	mount(&pod, "agent", "/var/lib/partition-agent", corev1.HostPathDirectoryOrCreate, false)
	// The host unit, which the kubelet's unit wants and comes after.
	mount(&pod, "units", "/etc/systemd/system", corev1.HostPathDirectory, false)
	// systemd's socket, to start the host unit. The directory, since systemd may make another
	// socket when it is executed again. Who connects needs the right to write the socket, not the mount.
	mount(&pod, "systemd", "/run/systemd", corev1.HostPathDirectory, true)
	// The settings, for the name of the kubelet's unit.
	mount(&pod, "settings", "/etc/partition-agent", corev1.HostPathDirectoryOrCreate, true)
	return pod
}

// Observe returns the pod that looks at a node, and changes nothing. Its termination message is an
// [operation.Observation].
func Observe(node, image string, driver operation.Driver) corev1.PodSpec {
	pod := podOf(node, image, "observe", "--driver="+string(driver))
	// All of the host's root, to read: the kubelet's configuration, checkpoint and log, units,
	// /proc, /sys and the pinning file are wherever the host has them, and so are the sockets of
	// systemd and of the runtime.
	mount(&pod, "host", "/", corev1.HostPathDirectory, true)
	return pod
}

// podOf returns a pod without anything of the host.
func podOf(node, image, command string, args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		// It is about this node, whatever its taints.
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}},
		}}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		// It speaks to no API.
		ServiceAccountName:           ServiceAccount,
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		Containers: []corev1.Container{{
			Name:                     Container,
			Image:                    image,
			ImagePullPolicy:          corev1.PullIfNotPresent,
			Args:                     append([]string{"cpu-policy", command, "--host-root=" + HostRoot, "--termination-log=" + terminationLog}, args...),
			TerminationMessagePath:   terminationLog,
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			SecurityContext: &corev1.SecurityContext{
				// Root's files are for root alone, and systemd obeys nobody else.
				RunAsUser:  new(int64(0)),
				RunAsGroup: new(int64(0)),
				// Where SELinux is enforced, no other type of a container may read the host's files and
				// connect to its sockets. Elsewhere it means nothing.
				SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"},
				// The rest takes rights away.
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				AllowPrivilegeEscalation: new(false),
				ReadOnlyRootFilesystem:   new(true),
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}},
	}
}

// mount gives the pod a directory of the host.
func mount(pod *corev1.PodSpec, name, path string, kind corev1.HostPathType, readOnly bool) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}})
	at := corev1.VolumeMount{Name: name, MountPath: HostRoot, ReadOnly: readOnly}
	if path != "/" {
		at.MountPath += path
	}
	if readOnly {
		// What is mounted below it as well, where kernel and runtime can do so.
		at.RecursiveReadOnly = new(corev1.RecursiveReadOnlyIfPossible)
	}
	container := &pod.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts, at)
}

// allowCommands gives a pod what the commands of the host need, which stop and start its kubelet, and
// what the steps need that no host unit does for it.
func allowCommands(pod *corev1.PodSpec) {
	// The steps are the pod's own: the drop-in and the checkpoint are wherever the host has them,
	// and so are the commands' programs, libraries and files. It gets none of the mounts that come
	// later: where no systemd has made the host's root a shared mount, containerd would refuse that
	// (internal/cri/opts, ensureSharedOrSlave).
	mount(pod, "host", "/", corev1.HostPathDirectory, false)
	// Health is served on the host's loopback address.
	pod.HostNetwork = true
	// The commands say and signal processes by the host's numbers.
	pod.HostPID = true
	security := pod.Containers[0].SecurityContext
	// The commands run in the host's root.
	security.Capabilities.Add = []corev1.Capability{"SYS_CHROOT"}
	// AppArmor's usual profile lets a container signal none of the host's processes.
	security.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
}
