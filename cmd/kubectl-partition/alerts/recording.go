// SPDX-License-Identifier: Apache-2.0

package alerts

// recordings are the recording rules, in an order in which each finds what it needs. Their
// names are level:metric:operations, as Prometheus' documentation recommends.
var recordings = []struct{ name, expr string }{
	// To which type a pod belongs, by its cores. A BestEffort pod has none.
	{"workload_partitioning:pod_type:info", `group by (namespace, pod, workload_type) (
  <cores>
)`},
	{"workload_partitioning:pool_requested:ratio", `max by (<node>, workload_type) (kubelet_workload_partitioning_requested_millicores{}) / 1000
/ (max by (<node>, workload_type) (kubelet_workload_partitioning_pool_cpus{}) > 0)`},
	// With the audit, whatever ran on the pool. Without it, what pods with cores used.
	{"workload_partitioning:pool_used:ratio", `sum by (<node>, workload_type) (rate(workload_partitioning_audit_pool_busy_seconds_total{}[5m]))
/ (sum by (<node>, workload_type) (workload_partitioning_audit_pool_cpus{}) > 0)
or (
  sum by (<node>, workload_type) (
    rate(container_cpu_usage_seconds_total{<cadvisor>,container!=""}[5m])
    * on (namespace, pod) group_left (workload_type) workload_partitioning:pod_type:info{}
  )
  / (max by (<node>, workload_type) (kubelet_workload_partitioning_pool_cpus{}) > 0)
  unless on (workload_type) workload_partitioning_audit_pool_cpus{}
)`},
	{"workload_partitioning:pool_waiting:ratio", `max by (<node>, workload_type) (
  rate(container_pressure_cpu_waiting_seconds_total{<cadvisor>,container!=""}[5m])
  * on (namespace, pod) group_left (workload_type) workload_partitioning:pod_type:info{}
)`},
	{"workload_partitioning:container_throttled:ratio", `sum by (<node>, namespace, pod, container, workload_type) (
  rate(container_cpu_cfs_throttled_periods_total{<cadvisor>,container!=""}[5m])
  * on (namespace, pod) group_left (workload_type) workload_partitioning:pod_type:info{}
)
/ (sum by (<node>, namespace, pod, container, workload_type) (
  rate(container_cpu_cfs_periods_total{<cadvisor>,container!=""}[5m])
  * on (namespace, pod) group_left (workload_type) workload_partitioning:pod_type:info{}
) > 0)`},

	// The service level indicators of docs/user/objectives.md.
	{"workload_partitioning:pods_asked:increase", added("workload_type", `apiserver_workload_partitioning_pods_total{`+unintended+`}`)},
	{"workload_partitioning:pods_partitioned:increase", added("workload_type", `apiserver_workload_partitioning_pods_total{outcome="partitioned"}`)},
	// Those that nothing in the pod or its namespace kept from it. A partitioned pod has an
	// empty reason.
	{"workload_partitioning:pods_possible:increase", added("workload_type", `apiserver_workload_partitioning_pods_total{reason=~"|type_inactive|changed_later"}`)},
	{"workload_partitioning:nodes_offering:ratio", `count by (workload_type) (group by (<node>, workload_type) (kubelet_workload_partitioning_pool_cpus{}))
/ (
  count by (workload_type) (group by (<node>, workload_type) (kubelet_workload_partitioning_pool_cpus{}))
  + max by (workload_type) (apiserver_workload_partitioning_nodes_missing{})
)`},
	{"workload_partitioning:apiservers_with_plugin:ratio", `count(group by (instance) (apiserver_workload_partitioning_active{})) / count(up{<apiserver>} == 1)`},
	// Sandboxes and pods count as off their set, too, and not as containers.
	{"workload_partitioning:containers_on_set:ratio", `clamp_min(1 -
  sum by (workload_type) (workload_partitioning_audit_containers_off_set{})
  / (sum by (workload_type) (workload_partitioning_audit_containers{}) > 0)
, 0)`},
	{"workload_partitioning:nodes_sharing:ratio", `avg(min by (<node>) (kubelet_workload_partitioning_shared_cpus{}) > bool 0)`},
	{"workload_partitioning:pools_with_room:ratio", `avg by (workload_type) (workload_partitioning:pool_used:ratio{} <= bool 0.9)`},
	{"workload_partitioning:admission_within_5ms:ratio", `sum(rate(apiserver_admission_controller_admission_duration_seconds_bucket{name="workload.openshift.io/Partitioning",le="0.005"}[5m]))
/ (sum(rate(apiserver_admission_controller_admission_duration_seconds_count{name="workload.openshift.io/Partitioning"}[5m])) > 0)`},
}
