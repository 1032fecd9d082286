// Package managed is what the kubelet's hooks call: a shim between the kubelet and
// the core. Each hook is one line in an upstream file; what it means stands here.
// Without a pinning file every function returns what it was given.
//
// It knows the kubelet's types, and nothing of API clients or admission. The state
// is the process's: a kubelet has one pinning file and reads it once.
package managed
