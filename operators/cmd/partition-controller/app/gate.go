// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/companion/metrics"
	"workload.openshift.io/operators/foreign"
)

// gate is the manager at home as a companion sees it. It lets the companion's controllers run only while
// nobody else manages the same objects, in either cluster, and writes in the companion's name. It runs where they do,
// on the leader.
type gate struct {
	manager.Manager
	companion string
	looks     []look
	period    time.Duration
	lease     *coordinationv1.Lease
	recorder  events.EventRecorder
	client    client.Client
	open      chan struct{}
}

// look is where other managers may be.
type look struct {
	reader   client.Reader
	writer   client.Client
	managers []foreign.Manager
}

// signed is a cluster whose client writes in a companion's name.
type signed struct {
	cluster.Cluster
	client client.Client
}

// GetClient returns a client that writes in the companion's name.
func (s signed) GetClient() client.Client { return s.client }

// newGate adds a gate to the manager at home, and returns the clusters as a companion sees them.
func newGate(clusters companion.Clusters, name string, needs companion.Needs, config *configv1alpha1.ControllerConfiguration) (companion.Clusters, error) {
	mgr := clusters.Home
	g := &gate{
		Manager:   mgr,
		companion: name,
		period:    config.ForeignManagerPeriod.Duration,
		lease:     &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: config.LeaderElection.ResourceNamespace, Name: config.LeaderElection.ResourceName}},
		recorder:  companion.Recorder(mgr, name),
		client:    client.WithFieldOwner(mgr.GetClient(), companion.FieldOwner(name)),
		open:      make(chan struct{}),
	}
	g.looks = []look{{mgr.GetAPIReader(), g.client, needs.Home.Foreign}}
	gated := companion.Clusters{Home: g}
	if hosted := clusters.Hosted; hosted != nil {
		writer := client.WithFieldOwner(hosted.GetClient(), companion.FieldOwner(name))
		g.looks = append(g.looks, look{hosted.GetAPIReader(), writer, needs.Hosted.Foreign})
		gated.Hosted = signed{hosted, writer}
	}
	if !config.Runs(configv1alpha1.Controllers) {
		return gated, nil
	}
	return gated, mgr.Add(manager.RunnableFunc(g.watch))
}

// GetClient returns a client that writes in the companion's name.
func (g *gate) GetClient() client.Client {
	return g.client
}

// find returns another manager of the companion's objects; nil if there is none.
func (g *gate) find(ctx context.Context) (*foreign.Found, error) {
	for _, at := range g.looks {
		if found, err := foreign.Find(ctx, at.reader, at.writer, at.managers); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// Add adds what the companion runs. What needs no leader, such as a webhook, does not wait.
func (g *gate) Add(runnable manager.Runnable) error {
	if anywhere, is := runnable.(manager.LeaderElectionRunnable); is && !anywhere.NeedLeaderElection() {
		return g.Manager.Add(runnable)
	}
	return g.Manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-g.open:
			return runnable.Start(ctx)
		case <-ctx.Done():
			return nil
		}
	}))
}

// watch opens the gate once there is no other manager. If one comes later, the process must end:
// controllers cannot be stopped one by one. Its next start waits.
func (g *gate) watch(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("companion", g.companion)
	opened, reported := false, ""
	for {
		found, err := g.find(ctx)
		switch {
		case err != nil:
			// Without an answer it stays as it is, and nothing begins.
			logger.Error(err, "Cannot see whether another program manages the same objects")
		case found != nil:
			metrics.ForeignManager.WithLabelValues(g.companion, found.Manager.Name).Set(1)
			if opened {
				return fmt.Errorf("companion %s ends: %w", g.companion, found)
			}
			if reported != found.Error() {
				reported = found.Error()
				logger.Info("Waiting: another program manages the same objects", "manager", found.Manager.Name, "where", found.Where, "handOver", found.Manager.HandOver)
				g.recorder.Eventf(g.lease, nil, corev1.EventTypeWarning, "ForeignManager", "Wait", "%s waits: %s", g.companion, found)
			}
		case !opened:
			metrics.ForeignManager.DeletePartialMatch(prometheus.Labels{"companion": g.companion})
			logger.Info("Starting controllers: no other program manages the same objects")
			close(g.open)
			opened = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(g.period):
		}
	}
}
