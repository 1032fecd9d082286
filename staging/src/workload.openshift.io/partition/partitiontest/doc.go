// Package partitiontest has pods as users write them, and what must become of each. It is
// there for the tests of every host of the mutation: the core itself, the admission plugin,
// the kubelet, and a real cluster. What all of them test alike stands here once.
//
// It knows pods, namespaces and outcomes. How a host is asked it must not know: it imports
// no client, nothing of a host, and not even package testing.
package partitiontest
