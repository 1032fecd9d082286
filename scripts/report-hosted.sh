#!/usr/bin/env bash
# report-hosted.sh CLUSTER KUBECTL prints what of a NodePool's configuration arrived where, on the clusters of make up-hosted.
set -euo pipefail
cluster=$1
kubectl=$2

eval "export $("$cluster" environment)"
hosted=$KUBECONFIG
eval "export $("$cluster" environment --management)"
management=$KUBECONFIG

print() {
  printf '\n%s\n' "$1"
  shift
  "$kubectl" --kubeconfig="$@"
}
print "Management cluster: NodePools" "$management" get nodepools --all-namespaces --output=wide
print "Management cluster: the hosted cluster's control plane" "$management" get configmaps --namespace=clusters-hosted --selector=hypershift.openshift.io/nodePool --show-labels
print "Hosted cluster: KubeletConfigs" "$hosted" get configmaps --namespace=openshift-config-managed --selector=hypershift.openshift.io/kubeletconfig-config --show-labels
print "Hosted cluster: nodes" "$hosted" get nodes --label-columns=hypershift.openshift.io/nodePool
print "Hosted cluster: Tuneds" "$hosted" get tuneds --namespace=openshift-cluster-node-tuning-operator --output=wide
print "Hosted cluster: what TuneD says on each node" "$hosted" get profiles --namespace=openshift-cluster-node-tuning-operator
printf '\nThis host, whose kernel is the node'"'"'s\n'
sysctl kernel.printk_ratelimit_burst
