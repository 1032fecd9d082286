// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"time"
)

// step is a part of Up.
type step struct {
	// progress is what Up says before the step. Empty means that an earlier step has said it, or
	// that the step takes no time.
	progress string
	run      func(context.Context) error
}

// steps returns the steps of Up, in their order.
func (c *Cluster) steps() []step {
	steps := []step{
		{"", plain(c.bypassProxy)},
		{"", c.preflight},
		{"", c.removeLast},
		{"", c.foreign},
		{"", c.prepare},
	}
	switch {
	case c.Config.RuntimeAlone:
		return append(steps, step{"starting containerd", c.startContainerd})
	case c.Config.Join != "": // the control plane is another host's
		return append(steps,
			step{"starting containerd, the kubelet and kube-proxy", c.startContainerd},
			step{"", plain(c.Attach)},
			step{"", plain(c.startProxy)},
			step{"", c.StartKubelet},
		)
	case c.Config.ControlPlaneType != "": // the kubelet runs the control plane, without an API server at first
		return append(steps,
			step{"starting containerd", c.startContainerd},
			step{"", plain(c.WriteAdmissionConfiguration)},
			step{"", plain(c.writeControlPlanePods)},
			step{"", plain(c.configureKubelet)},
			step{"", plain(c.Attach)},
			step{"starting the kubelet, and with it the control plane", plain(c.Kubelet.Start)},
			step{"", func(ctx context.Context) error { return c.await(ctx, c.Kubelet, 3*time.Minute, ready(c.Client)) }},
			step{"", plain(c.startProxy)},
			step{"", func(ctx context.Context) error { return c.awaitNode(ctx, time.Time{}) }},
		)
	case c.Config.WithoutNode:
		return append(steps,
			step{"starting etcd and the control plane", c.startEtcd},
			step{"", c.StartControlPlane},
		)
	default:
		return append(steps,
			step{"starting etcd and containerd", plain(c.Containerd.Start)},
			step{"", c.startEtcd},
			step{"starting the control plane", c.StartControlPlane},
			step{"", c.awaitContainerd},
			step{"", c.importImages},
			step{"starting the kubelet and kube-proxy", plain(c.startProxy)},
			step{"", c.StartKubelet},
		)
	}
}

// startProxy starts kube-proxy, unless another program runs it.
func (c *Cluster) startProxy() error {
	if c.Config.WithoutProxy {
		return nil
	}
	return c.Proxy.Start()
}

// plain makes a step of a function that waits for nothing.
func plain(run func() error) func(context.Context) error {
	return func(context.Context) error { return run() }
}

// Up starts the cluster and waits until its node is Ready. It first removes what an earlier
// cluster has left.
func (c *Cluster) Up(ctx context.Context) error {
	for _, step := range c.steps() {
		if step.progress != "" {
			c.say("%s", step.progress)
		}
		if err := step.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Fit returns why Up would refuse this host, or nil. It needs nothing that is built. If an earlier cluster is there,
// which Up removes first, it looks at nothing but the host's kind.
func (c *Cluster) Fit(ctx context.Context) error {
	if err := Unfit(); err != nil || c.Exists() {
		return err
	}
	return c.foreign(ctx)
}

// removeLast removes what an earlier cluster has left. A host that joins another has only the
// authority's files, which stay.
func (c *Cluster) removeLast(ctx context.Context) error {
	if !c.Exists() || c.Config.Join != "" {
		return nil
	}
	c.say("removing what an earlier cluster has left")
	return c.Down(ctx)
}
