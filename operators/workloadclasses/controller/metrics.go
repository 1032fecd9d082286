// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	rulesInvalid = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "workloadclasses_rules_invalid",
		Help: "1 while the rules file has a mistake, and the rules of before are used.",
	})
	podsCounted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "workloadclasses_pods_total",
		Help: "Pods that were asked about, by the class that they got, or by why they were left as they are.",
	}, []string{"class", "reason"})
	nodesByState = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "workloadclasses_nodes",
		Help: "Nodes of a class, by how new pods avoid them; Leaving are given back.",
	}, []string{"class", "state"})
	operations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "workloadclasses_operations_total",
		Help: "Operations that give a node back, by how they went: Begun, Scaled (its set has one replica less) or Returned (the node was freed).",
	}, []string{"class", "result"})
)

func init() { metrics.Registry.MustRegister(rulesInvalid, podsCounted, nodesByState, operations) }
