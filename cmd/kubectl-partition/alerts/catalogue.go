// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"workload.openshift.io/operators/alert"
	companion "workload.openshift.io/operators/companion/metrics"
	tuning "workload.openshift.io/operators/tuning/metrics"
	workloadclasses "workload.openshift.io/operators/workloadclasses/metrics"
	"workload.openshift.io/partition"
)

// Prefix begins the names of all alerts in the rules. The short name of an alert follows.
const Prefix = "WorkloadPartitioning"

const (
	minute = model.Duration(time.Minute)
	hour   = model.Duration(time.Hour)
)

// Alerts returns the catalogue, in the order of docs/user/alerts.md: those on nodes, then what each companion brings.
func Alerts() []alert.Alert {
	alerts := slices.Clone(catalogue)
	for _, set := range Companions() {
		alerts = append(alerts, set.Alerts...)
	}
	return alerts
}

// Companions returns what the companions bring, first what all of them have.
func Companions() []alert.Set { return []alert.Set{companion.Set, workloadclasses.Set, tuning.Set} }

// added is an expression for how much a counter grew within the window, by some labels. A
// series that appears counts from zero, which increase() alone does not see: a counter with
// the label of a reason does not exist before the first pod.
func added(by, counter string) string {
	return `sum by (` + by + `) (
  (` + counter + ` unless count_over_time(` + counter + `[<window>] offset <window>))
  or increase(` + counter + `[<window>])
)`
}

// unintended matches what pods_total counts, without pods that are ordinary as somebody means them to be.
const unintended = `reason!~"` + string(partition.ReasonDecidedAgainst) + `|` + string(partition.ReasonNodeDoesNotCount) + `"`

// placement are the codes of findings that the alert Leak counts already.
const placement = "off-pool|on-pool|on-host|off-exclusive|task-off-set|process-moved"

const needsAudit = " This needs the DaemonSet of kubectl partition audit --serve."

const needsKubeStateMetrics = " This needs kube-state-metrics, because no metric of the kubelet says to which type a pod belongs."

// Metrics are those of docs/user/metrics.md; container_ are cAdvisor's, and
// workload_partitioning: are recorded.
var catalogue = []alert.Alert{
	{
		Name: "APIServerWithoutPlugin", Severity: alert.Critical, For: 15 * minute,
		// A kube-apiserver whose plugin knows no type has none of its gauges. The plugin knows a
		// type that two nodes report, or all.
		Expr: `(up{<apiserver>} == 1 unless on (instance) apiserver_workload_partitioning_active{})
and on () (
  count(apiserver_workload_partitioning_active{}) > 0
  or max(count by (workload_type) (kubelet_workload_partitioning_pool_cpus{})) > 1
  or count(group by (<node>) (kubelet_workload_partitioning_pool_cpus{})) == count(group by (<node>) (up{<kubelet>}))
)`,
		Summary:     `kube-apiserver {{ $labels.instance }} runs without the admission plugin, while nodes have pools.`,
		Description: `kube-apiserver {{ $labels.instance }} has no metric apiserver_workload_partitioning_active. Through it, anyone who creates pods can write the cores and annotations of a partitioned pod by hand, and kubelets believe them. Replace it by a patched one, and check that its --disable-admission-plugins does not name workload.openshift.io/Partitioning.`,
	},
	{
		Name: "ReplicasDisagree", Severity: alert.Warning, For: 15 * minute,
		Expr: `(max by (workload_type) (apiserver_workload_partitioning_active{}) != min by (workload_type) (apiserver_workload_partitioning_active{}))
or (count by (workload_type) (apiserver_workload_partitioning_active{}) < on () group_left () count(group by (instance) (apiserver_workload_partitioning_active{})))`,
		Summary:     `The replicas of kube-apiserver disagree on whether workload type {{ $labels.workload_type }} is active.`,
		Description: `Whether a pod that asks for {{ $labels.workload_type }} is partitioned depends on the replica that admits it. Compare the files of --admission-control-config-file: all replicas must have the same configuration of the plugin. If they do, look for a replica whose log says that its caches are not synchronised.`,
	},
	{
		Name: "NodesMissing", Severity: alert.Warning, For: 15 * minute, Threshold: 0,
		Expr: `max by (workload_type) (apiserver_workload_partitioning_nodes_missing{}) > <threshold>
and on (workload_type) max by (workload_type) (apiserver_workload_partitioning_active{}) == 1`,
		Summary:     `{{ $value }} nodes do not offer the active workload type {{ $labels.workload_type }}.`,
		Description: `Pods of type {{ $labels.workload_type }} cannot run on {{ $value }} nodes, and stay Pending if no other node has room. Events NodeMissingPartition name the nodes. Give each of them a pinning file and restart its kubelet, or label it workload.openshift.io/partitioning=ignore.`,
	},
	{
		Name: "TypeInactive", Severity: alert.Warning, For: hour,
		Expr: `max by (workload_type) (apiserver_workload_partitioning_active{}) == 0
and on (workload_type) max by (workload_type) (apiserver_workload_partitioning_nodes_missing{}) > 0
and on (workload_type) count by (workload_type) (kubelet_workload_partitioning_pool_cpus{}) > 0`,
		Summary:     `Workload type {{ $labels.workload_type }} is not active: some nodes offer it, and some do not.`,
		Description: `Pods that ask for {{ $labels.workload_type }} run as ordinary pods, and stay so when the type becomes active. The nodes without the type have no {{ $labels.workload_type }}.workload.openshift.io/cores in their capacity. Give each of them a pinning file and restart its kubelet, or label it workload.openshift.io/partitioning=ignore.`,
	},
	{
		Name: "TypeDeactivated", Severity: alert.Critical, For: 5 * minute,
		Expr: `max by (workload_type) (apiserver_workload_partitioning_active{}) == 0
and on (workload_type) max by (workload_type) (max_over_time(apiserver_workload_partitioning_active{}[<window>])) == 1`,
		Summary:     `Workload type {{ $labels.workload_type }} was active and is not any more.`,
		Description: `New pods that ask for {{ $labels.workload_type }} run as ordinary pods, off the pool. Either the type was taken out of the annotation workload.openshift.io/enabled of kube-system, or it was never written there and a node without the type has joined. If this was not intended, write the annotation again, and recreate the pods that were created meanwhile.`,
	},
	{
		Name: "NotLatched", Severity: alert.Warning, For: 10 * minute,
		Expr:        `max by (workload_type) (apiserver_workload_partitioning_unlatched{}) == 1`,
		Summary:     `kube-apiserver could not record in kube-system that type {{ $labels.workload_type }} is active.`,
		Description: `The type stops being active when a node without it joins. Look for "could not be latched" in the log of kube-apiserver, and for a webhook or policy that keeps kube-apiserver from annotating the namespace kube-system.`,
	},
	{
		Name: "PodsNotAllowed", Severity: alert.Critical, Threshold: 0,
		Expr:        `max by (workload_type) (apiserver_workload_partitioning_pods_not_allowed{}) > <threshold>`,
		Summary:     `{{ $value }} pods have no right to workload type {{ $labels.workload_type }}, and kubelets take them as partitioned.`,
		Description: `Their namespaces do not allow {{ $labels.workload_type }}: they were stored before the admission plugin was there, or past it. They run in the pool, with whatever weight they asked for. kubectl partition status names them; delete each, or let its namespace allow the type.`,
	},
	{
		Name: "PodsSkipped", Severity: alert.Warning, Threshold: 0,
		Expr: added("workload_type, reason", `apiserver_workload_partitioning_pods_total{outcome="skipped",`+unintended+`}`) + `
> <threshold>`,
		Summary:     `Pods that asked for workload type {{ $labels.workload_type }} run as ordinary pods: {{ $labels.reason }}.`,
		Description: `Within <window>, {{ $value | printf "%.0f" }} pods asked for {{ $labels.workload_type }} and were not partitioned, with the reason {{ $labels.reason }}. They use CPUs outside of the pool, and stay as they are until they are created again. Their annotation workload.openshift.io/warning says what to change.`,
	},
	{
		Name: "PodsRefused", Severity: alert.Warning, Threshold: 0,
		Expr: added("workload_type, reason", `apiserver_workload_partitioning_pods_total{outcome="refused"}`) + `
> <threshold>`,
		Summary:     `Pods that asked for workload type {{ $labels.workload_type }} are not created: {{ $labels.reason }}.`,
		Description: `Within <window>, {{ $value | printf "%.0f" }} requests to create a pod were refused, with the reason {{ $labels.reason }}. A controller that tries again counts each time. Look for Events FailedCreate of workloads that ask for {{ $labels.workload_type }}; the message says what to change.`,
	},
	{
		Name: "StaticPodNotPartitioned", Severity: alert.Warning, For: 5 * minute,
		Expr:        `sum by (<node>, reason) (kubelet_workload_partitioning_static_pods_skipped_total{}) > 0`,
		Summary:     `A static pod of {{ $labels.<node> }} runs as an ordinary pod, and its manifest asks for a partition or for cores: {{ $labels.reason }}.`,
		Description: `An Event StaticPodNotPartitioned on the Node names the pod and says what to change in its manifest. The kubelet counts since its start: the alert ends when the kubelet restarts with a correct manifest.`,
	},
	{
		Name: "Leak", Severity: alert.Critical, For: 5 * minute,
		Expr:        `sum by (<node>, workload_type) (workload_partitioning_audit_containers_off_set{}) > 0`,
		Summary:     `{{ $value }} containers or pods of type {{ $labels.workload_type }} on {{ $labels.<node> }} may run on CPUs where they must not.`,
		Description: `Either a partitioned pod has left its pool, or another pod (type "-") may use CPUs of a pool or of an exclusive container. Run kubectl partition audit on the node: it names each of them, and says what to do.` + needsAudit,
	},
	{
		Name: "AuditFindings", Severity: alert.Warning, For: 15 * minute,
		Expr:        `sum by (<node>, code) (workload_partitioning_audit_findings{code!~"` + placement + `"}) > 0`,
		Summary:     `The audit of {{ $labels.<node> }} finds {{ $labels.code }} {{ $value }} times.`,
		Description: `The pinning file, the kubelet and the runtime of the node do not agree, or a weight or quota is not what was asked for. Run kubectl partition audit on the node: it names what is wrong, and says what to do.` + needsAudit,
	},
	{
		Name: "AuditStale", Severity: alert.Warning, For: 5 * minute, Threshold: 900,
		Expr: `time() - max by (<node>) (workload_partitioning_audit_last_success_timestamp_seconds{}) > <threshold>
or max by (<node>) (workload_partitioning_audit_walks_total{result="success"}) == 0`,
		Summary:     `The audit of {{ $labels.<node> }} does not succeed.`,
		Description: `Until it does, a leak on the node goes unnoticed. The log of the DaemonSet's pod there says what it could not read.` + needsAudit,
	},
	{
		Name: "AuditMissing", Severity: alert.Warning, For: 15 * minute,
		Expr: `count by (workload_type) (group by (<node>, workload_type) (kubelet_workload_partitioning_pool_cpus{}))
> on (workload_type) count by (workload_type) (group by (<node>, workload_type) (workload_partitioning_audit_pool_cpus{}))`,
		Summary:     `Fewer nodes are audited than have a pool of type {{ $labels.workload_type }}.`,
		Description: `On a node whose audit does not run, leaks go unnoticed, and earlier findings of its audit have no alert any more. Compare the pods of the audit's DaemonSet with the nodes that have a pool; up of its job says which are not scraped.` + needsAudit,
	},
	{
		Name: "NothingLeftToShare", Severity: alert.Warning, For: 5 * minute,
		Expr:        `min by (<node>) (kubelet_workload_partitioning_shared_cpus{}) == 0`,
		Summary:     `Exclusive containers have every CPU of {{ $labels.<node> }} that no pool has.`,
		Description: `Containers without exclusive CPUs run on a single CPU now, or on those of reservedSystemCPUs, and may disturb an exclusive container there. The Event NoSharedCPUs on the Node names the CPU and the pods. Move a pod with exclusive CPUs to another node. Only then reserve one more CPU in no pool with reservedSystemCPUs: earlier, the kubelet would reject a pod.`,
	},
	{
		Name: "PoolOvercommitted", Severity: alert.Info, For: 30 * minute, Threshold: 1,
		Expr:        `workload_partitioning:pool_requested:ratio{} > <threshold>`,
		Summary:     `Pods of type {{ $labels.workload_type }} on {{ $labels.<node> }} request {{ $value | humanizePercentage }} of their pool.`,
		Description: `The scheduler does not bound what a pool has to carry: the node offers as many cores as the whole host has CPU. While all pods are busy, each gets less than it asked for. Compare with what is used (workload_partitioning:pool_used:ratio), then let the pool grow, or bound the namespaces by a quota on requests.{{ $labels.workload_type }}.workload.openshift.io/cores.`,
	},
	{
		Name: "PodExceedsPool", Severity: alert.Info, For: 15 * minute,
		Expr: `sum by (namespace, pod, workload_type) (
  <cores>
) / 1000
> on (workload_type) group_left () (max by (workload_type) (kubelet_workload_partitioning_pool_cpus{}) > 0)`,
		Summary:     `Pod {{ $labels.namespace }}/{{ $labels.pod }} requests {{ $value }} CPUs, more than any pool of type {{ $labels.workload_type }} has.`,
		Description: `A request is a weight: while the pool is busy, other pods in it get less than they asked for. Let the pod request less, and bound its namespace by a quota on requests.{{ $labels.workload_type }}.workload.openshift.io/cores.` + needsKubeStateMetrics,
	},
	{
		// The cluster's own namespaces have no quota.
		Name: "NamespaceUnbounded", Severity: alert.Info, For: hour,
		Expr: `count by (namespace, workload_type) (workload_partitioning:pod_type:info{namespace!~"kube-.*|openshift-.*|partition-.*"})
unless on (namespace, workload_type) label_replace(kube_resourcequota{type="hard",resource=~"requests[.].+[.]workload[.]openshift[.]io/cores",<kube-state-metrics>}, "workload_type", "$1", "resource", "requests[.](.+)[.]workload[.]openshift[.]io/cores")`,
		Summary:     `Namespace {{ $labels.namespace }} has {{ $value }} pods of type {{ $labels.workload_type }}, and no quota bounds the cores that they request.`,
		Description: `A request is a weight: a pod of this namespace may take CPU time from everything else in a pool, and all cores of a node. Bound the namespace by a quota on requests.{{ $labels.workload_type }}.workload.openshift.io/cores.` + needsKubeStateMetrics,
	},
	{
		Name: "PoolSaturated", Severity: alert.Warning, For: 15 * minute, Threshold: 0.9,
		Expr:        `workload_partitioning:pool_used:ratio{} > <threshold>`,
		Summary:     `The pool of type {{ $labels.workload_type }} on {{ $labels.<node> }} is {{ $value | humanizePercentage }} busy.`,
		Description: `What keeps the cluster running competes for the last CPU time of its pool. Find the pods that use most of it, give those that matter a larger request, or let the pool grow. This needs the DaemonSet of kubectl partition audit --serve, which measures the CPUs of the pool. Without it, kube-state-metrics is needed, because no metric of the kubelet says to which type a pod belongs; then only pods with a CPU request count.`,
	},
	{
		Name: "PoolPressure", Severity: alert.Warning, For: 15 * minute, Threshold: 0.5,
		Expr:        `workload_partitioning:pool_waiting:ratio{} > <threshold>`,
		Summary:     `A container of type {{ $labels.workload_type }} on {{ $labels.<node> }} waits for a CPU {{ $value | humanizePercentage }} of the time.`,
		Description: `Some process of the container that waits most was ready and had no CPU. Its own CPU limit may be the reason (compare ContainerThrottled); otherwise the pool is too small for what runs on it. Pressure (PSI) exists on cgroup v2, with the kubelet of v1.34 or later.` + needsKubeStateMetrics,
	},
	{
		Name: "ContainerThrottled", Severity: alert.Info, For: 15 * minute, Threshold: 0.25,
		Expr:        `workload_partitioning:container_throttled:ratio{} > <threshold>`,
		Summary:     `Container {{ $labels.container }} of pod {{ $labels.namespace }}/{{ $labels.pod }} is throttled in {{ $value | humanizePercentage }} of its periods.`,
		Description: `The container of type {{ $labels.workload_type }} has used up its CPU limit, whether or not its pool has time left. Raise the limit of its workload, or remove it: within a pool, the weights of the requests keep pods apart.` + needsKubeStateMetrics,
	},
}
