// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/operators/cpudriver"
	"workload.openshift.io/operators/numaresources"
)

// Exporter writes what one node's NUMA nodes have, and what is free.
type Exporter struct {
	// Node is this node.
	Node Node
	// Client reads and writes NodeResourceTopologies. It caches nothing.
	Client client.Client
	// Kubelet is the node's.
	Kubelet Kubelet
	// Socket is that of the kubelet's podresources, Sysfs where sysfs is mounted, and Configuration the file of a
	// [numaresources.ExporterConfiguration].
	Socket, Sysfs, Configuration string

	resources *podResources
	// config is the last one that could be read.
	config numaresources.ExporterConfiguration
	// What is read seldom: the kubelet recreates its socket when it starts, and changes its policies only then.
	run     os.FileInfo
	readAt  time.Time
	nodes   []topology.NUMANode
	running numaresources.Kubelet
	driver  string
	problem string
	// written is what stands in the API as far as is known.
	written   *v1alpha2.NodeResourceTopology
	writtenAt time.Time
}

// readAgain is how often everything is read that changes seldom: how the kubelet runs, sysfs, DRA drivers, and what stands in the API. It is
// read sooner while it is not known how the kubelet runs.
const (
	readAgain     = time.Minute
	readAgainSoon = 5 * time.Second
)

// A kubelet that has just started may not answer yet. It is asked so often, and with this pause, before it is told that nothing is known.
const (
	askTimes = 3
	askPause = time.Second
)

// A change is written once two looks agree, settle apart, or after settleLimit.
const (
	settle      = 250 * time.Millisecond
	settleLimit = 2 * time.Second
)

// longestWait is the longest time from a failure to the next look.
const longestWait = 5 * time.Second

// Run looks at the node until the context ends.
func (e *Exporter) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	resources, err := newPodResources(e.Socket)
	if err != nil {
		return err
	}
	defer resources.connection.Close()
	e.resources, e.config = resources, numaresources.DefaultExporterConfiguration()
	wait := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		e.configure(ctx)
		if err := e.look(ctx); err != nil {
			wait = min(max(2*wait, e.config.LookPeriod()), longestWait)
			logger.Error(err, "Nothing was written, retrying", "node", e.Node.Name, "wait", wait)
			continue
		}
		wait = e.config.LookPeriod()
	}
}

// configure reads the configuration again. One that cannot be read changes nothing: the operator puts it right.
func (e *Exporter) configure(ctx context.Context) {
	data, err := kubeletstate.ReadFile(e.Configuration)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The configuration cannot be read, and the last one stays")
		return
	}
	config, err := numaresources.ParseExporterConfiguration(data)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The configuration is not valid, and the last one stays", "file", e.Configuration)
		return
	}
	if config != e.config {
		klog.FromContext(ctx).Info("Configured", "file", e.Configuration, "config", config.String())
	}
	e.config = config
}

// look reads the node, and writes if that has changed or a heartbeat is due.
func (e *Exporter) look(ctx context.Context) error {
	if e.config.Paused {
		return nil
	}
	if err := e.readSeldom(ctx, false); err != nil {
		return err
	}
	now, err := e.observe(ctx)
	if err != nil {
		return err
	}
	changed := e.written == nil || !same(e.written, now)
	if !changed && time.Since(e.writtenAt) < e.config.HeartbeatPeriod.Duration {
		return nil
	}
	if changed {
		if now, err = e.settled(ctx, now); err != nil {
			return err
		}
	}
	return e.write(ctx, now)
}

// readSeldom reads what changes seldom, if it is time or the kubelet has started since.
func (e *Exporter) readSeldom(ctx context.Context, now bool) error {
	run, err := e.resources.run()
	if err != nil {
		return fmt.Errorf("podresources: %w", err)
	}
	restarted := e.run == nil || !os.SameFile(e.run, run) || !e.run.ModTime().Equal(run.ModTime())
	age := time.Since(e.readAt)
	due := age >= readAgain || e.running.Unknown != "" && age >= readAgainSoon
	if !now && !restarted && !due {
		return nil
	}
	if e.nodes, err = topology.ReadNUMA(e.Sysfs); err != nil {
		return err
	}
	// The answer may come from kube-apiserver's cache.
	driver, err := cpudriver.OnNode(ctx, e.Client, e.Node.Name, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
	if err != nil {
		return err
	}
	running, err := e.Kubelet.Running(ctx)
	for asked := 1; running.Unknown == numaresources.KubeletUnreachable && e.running.Unknown == "" && asked < askTimes; asked++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(askPause):
		}
		running, err = e.Kubelet.Running(ctx)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != e.problem {
		if e.problem = problem; problem != "" {
			klog.FromContext(ctx).Error(err, "It is not known how the kubelet runs", "code", running.Unknown)
		} else {
			klog.FromContext(ctx).Info("It is known again how the kubelet runs", "kubelet", running)
		}
	}
	if due && e.written != nil {
		if err := e.readWritten(ctx); err != nil {
			return err
		}
	}
	e.running, e.driver, e.run, e.readAt = running, driver, run, time.Now()
	return nil
}

// readWritten finds out whether somebody has changed or deleted what was written. The answer may come from
// kube-apiserver's cache.
func (e *Exporter) readWritten(ctx context.Context) error {
	there := &v1alpha2.NodeResourceTopology{}
	err := e.Client.Get(ctx, client.ObjectKey{Name: e.Node.Name}, there, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})
	if apierrors.IsNotFound(err) {
		e.written = nil
		return nil
	}
	if err != nil {
		return err
	}
	e.written = there
	return nil
}

// observe returns what is to stand in the API.
func (e *Exporter) observe(ctx context.Context) (*v1alpha2.NodeResourceTopology, error) {
	// What comes later may not be in what is read: a scheduler compares this with when a pod has started.
	at := time.Now()
	allocatable, pods, err := e.resources.read(ctx)
	if err != nil {
		return nil, err
	}
	// A kubelet that has just started gives all to nobody, until it has heard of its pods: also of the one that this is.
	own := e.Node.Pod
	if own.Name != "" && !slices.ContainsFunc(pods, func(p *podresourcesv1.PodResources) bool {
		return p.GetNamespace() == own.Namespace && p.GetName() == own.Name
	}) {
		return nil, fmt.Errorf("podresources %s: the kubelet does not know its pods yet: pod %s is missing", e.Socket, own)
	}
	observed := numaresources.Observed{Nodes: e.nodes, Allocatable: allocatable, Pods: pods, Kubelet: e.running, Started: e.run.ModTime(), CPUDriver: e.driver, Fingerprint: e.config.Fingerprint}
	zones, err := observed.Zones()
	if err != nil {
		e.readAt = time.Time{} // sysfs may have changed
		return nil, err
	}
	return &v1alpha2.NodeResourceTopology{
		ObjectMeta: metav1.ObjectMeta{
			Name: e.Node.Name,
			// Kubernetes' garbage collector removes it with the Node. blockOwnerDeletion would need a right on Nodes.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: e.Node.Name, UID: e.Node.UID}},
			Labels:          map[string]string{numaresources.OwnerLabel: numaresources.Name},
			Annotations:     map[string]string{numaresources.HeartbeatAnnotation: at.UTC().Format(time.RFC3339)},
		},
		Zones:      zones,
		Attributes: observed.Attributes(),
	}, nil
}

// settled looks until two looks agree: a pod's containers get what they ask for one after another. What is written comes with
// how the kubelet runs at this moment.
func (e *Exporter) settled(ctx context.Context, now *v1alpha2.NodeResourceTopology) (*v1alpha2.NodeResourceTopology, error) {
	for deadline := time.Now().Add(settleLimit); ; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(settle):
		}
		next, err := e.observe(ctx)
		if err != nil {
			return nil, err
		}
		if same(now, next) || time.Now().After(deadline) {
			break
		}
		now = next
	}
	if err := e.readSeldom(ctx, true); err != nil {
		return nil, err
	}
	return e.observe(ctx)
}

// same reports whether two say the same of a node.
func same(a, b *v1alpha2.NodeResourceTopology) bool {
	return equality.Semantic.DeepEqual(a.Zones, b.Zones) && equality.Semantic.DeepEqual(a.Attributes, b.Attributes) && len(a.TopologyPolicies) == len(b.TopologyPolicies) &&
		a.Labels[numaresources.OwnerLabel] == b.Labels[numaresources.OwnerLabel]
}

// fieldOwner is in whose name exporters write.
var fieldOwner = client.FieldOwner(numaresources.FieldOwner)

// write puts what was observed into the API, with the time.
func (e *Exporter) write(ctx context.Context, want *v1alpha2.NodeResourceTopology) error {
	now := time.Now()
	if e.written == nil {
		there := &v1alpha2.NodeResourceTopology{}
		switch err := e.Client.Get(ctx, client.ObjectKeyFromObject(want), there); {
		case apierrors.IsNotFound(err):
			if err := e.Client.Create(ctx, want, fieldOwner); err != nil {
				return fmt.Errorf("NodeResourceTopology %s: %w", want.Name, err)
			}
			e.written, e.writtenAt = want, now
			klog.FromContext(ctx).Info("Created the NodeResourceTopology", "node", want.Name)
			return nil
		case err != nil:
			return fmt.Errorf("NodeResourceTopology %s: %w", want.Name, err)
		}
		e.written = there
	}
	next := e.written.DeepCopy()
	next.Zones, next.Attributes, next.TopologyPolicies = want.Zones, want.Attributes, nil
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	maps.Copy(next.Labels, want.Labels)
	if !slices.ContainsFunc(next.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == e.Node.UID }) {
		// Another exporter made it, or it is that of an earlier Node of this name.
		next.OwnerReferences = want.OwnerReferences
	}
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, numaresources.HeartbeatAnnotation, want.Annotations[numaresources.HeartbeatAnnotation])
	if err := e.Client.Update(ctx, next, fieldOwner); err != nil {
		e.written = nil // read it again
		return fmt.Errorf("NodeResourceTopology %s: %w", want.Name, err)
	}
	e.written, e.writtenAt = next, now
	klog.FromContext(ctx).V(2).Info("Wrote the NodeResourceTopology", "node", want.Name)
	return nil
}
