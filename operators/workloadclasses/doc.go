// SPDX-License-Identifier: Apache-2.0

// Package workloadclasses has the rules of workload classes: which class a pod has and what that
// writes into it, which nodes of a class new pods avoid, and when a node is given back. They are
// functions of plain values: this package knows no client, no cluster and no clock.
//
// A class is a kind of workload with nodes of its own. Scaling up is the cluster autoscaler's;
// scaling down is done here, since the autoscaler keeps a node for each pod that no ReplicaSet owns.
package workloadclasses
