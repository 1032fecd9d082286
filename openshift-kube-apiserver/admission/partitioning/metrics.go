package partitioning

import (
	"sync"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"workload.openshift.io/partition"
)

const subsystem = "apiserver_workload_partitioning"

// otherType stands for every workload type that the cluster does not know, so that
// users cannot make series by inventing types.
const otherType = "other"

var (
	podsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: subsystem + "_pods_total", Help: "Number of created pods that asked for a workload type, by what became of them and why.", StabilityLevel: metrics.ALPHA,
	}, []string{"workload_type", "outcome", "reason"})
	activeDesc = metrics.NewDesc(subsystem+"_active", "Whether pods are partitioned as a workload type that the cluster knows.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
	nodesMissingDesc = metrics.NewDesc(subsystem+"_nodes_missing", "Number of nodes that do not report the cores of a workload type that the cluster knows.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
	unlatchedDesc = metrics.NewDesc(subsystem+"_unlatched", "Whether a workload type is active and could not be written to the annotation of kube-system that keeps it so.",
		[]string{"workload_type"}, nil, metrics.ALPHA, "")
)

// collected is the activation whose gauges are reported: that of the process's
// kube-apiserver, of which tests have several.
var collected struct {
	sync.Mutex
	*activation
}

var registerCollector = sync.OnceFunc(func() {
	legacyregistry.MustRegister(podsTotal)
	legacyregistry.CustomMustRegister(&collector{})
})

func collect(a *activation) {
	collected.Lock()
	collected.activation = a
	collected.Unlock()
	registerCollector()
}

// count counts what was decided of a pod. Nothing comes of a dry run.
func (p *plugin) count(a admission.Attributes, d partition.Decision) {
	if a.IsDryRun() || d.Outcome == partition.Ordinary {
		return
	}
	workloadType := d.Target.Type
	if !p.activation.known(workloadType) {
		workloadType = otherType
	}
	podsTotal.WithLabelValues(workloadType, string(d.Outcome), string(d.Reason)).Inc()
}

type collector struct{ metrics.BaseStableCollector }

func (*collector) DescribeWithStability(descs chan<- *metrics.Desc) {
	descs <- activeDesc
	descs <- nodesMissingDesc
	descs <- unlatchedDesc
}

func (*collector) CollectWithStability(found chan<- metrics.Metric) {
	collected.Lock()
	a := collected.activation
	collected.Unlock()
	gauge := func(desc *metrics.Desc, value float64, workloadType string) {
		found <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, workloadType)
	}
	for workloadType, state := range a.report() {
		gauge(activeDesc, number(state.active), workloadType)
		gauge(nodesMissingDesc, float64(state.missing), workloadType)
		gauge(unlatchedDesc, number(state.unlatched), workloadType)
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
