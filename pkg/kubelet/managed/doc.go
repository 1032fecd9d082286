// Package managed is what the kubelet's hooks call: a shim between the kubelet and the core. A
// hook is one or a few lines in an upstream file; what they do is defined here.
//
// Without a pinning file, and without a record of a previous one, every function returns what
// upstream would have without it. With a record only, the kubelet takes back what a previous
// kubelet set: RunningContainerCPUs and RepairPodCgroup free containers and pods,
// ConfineClasses frees the QoS classes, SetCores removes cores, and StartPolicy and
// MoveContainers remove the record.
//
// The package knows the kubelet's types, and nothing of API clients or admission. Its state
// belongs to the process: a kubelet has one pinning file and reads it once.
package managed
