// Package managed is what the kubelet's hooks call: a shim between the kubelet and
// the core. Each hook is a line in an upstream file; what it means stands here.
//
// Without a pinning file, and without a record of an earlier one, every function returns
// what upstream would have without it. With a record only, the kubelet takes back what an
// earlier one has set: RunningContainerCPUs frees containers, SetCores removes cores, and StartPolicy
// and MoveContainers remove the record.
//
// It knows the kubelet's types, and nothing of API clients or admission. The state
// is the process's: a kubelet has one pinning file and reads it once.
package managed
