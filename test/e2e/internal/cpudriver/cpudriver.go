// SPDX-License-Identifier: Apache-2.0

// Package cpudriver is the NRI plugin of a DRA driver for CPUs: it sets the cpusets of containers as that of
// kubernetes-sigs/dra-driver-cpu does (pkg/driver/nri_hooks.go, at de98098690f2). It has no claims and no ResourceSlices. It must
// not know what is tested with it.
package cpudriver

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/utils/cpuset"
)

// Variable begins the name of the variable with a container's CPUs. The driver has CDI set it; in tests the pod does.
const Variable = "DRA_CPUSET_"

// Driver gives each container the CPUs of its variable.
type Driver struct {
	// Shared are the CPUs to which it moves all other containers, less those that it has given. If they are empty, it leaves
	// the others alone.
	Shared cpuset.CPUSet

	stub stub.Stub
	mu   sync.Mutex
	// given has the CPUs of each container by its ID; none means that it has no variable.
	given map[string]cpuset.CPUSet
}

// Start connects to the runtime at its socket. It returns once the runtime knows the plugin, and before the runtime has done
// what the plugin wants of containers that run already.
func (d *Driver) Start(ctx context.Context, socket string) (err error) {
	d.given = map[string]cpuset.CPUSet{}
	if d.stub, err = stub.New(d, stub.WithSocketPath(socket), stub.WithPluginName("cpudriver"), stub.WithPluginIdx("10"), stub.WithOnClose(func() {})); err != nil {
		return fmt.Errorf("NRI plugin: %w", err)
	}
	if err := d.stub.Start(ctx); err != nil {
		return fmt.Errorf("NRI plugin: %w", err)
	}
	return nil
}

// Stop ends the connection. Containers stay where they are.
func (d *Driver) Stop() { d.stub.Stop() }

// Synchronize is told once, after a start, which containers there are.
func (d *Driver) Synchronize(_ context.Context, _ []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.given = map[string]cpuset.CPUSet{}
	for _, c := range containers {
		d.given[c.Id] = variable(c)
	}
	return d.updates(""), nil
}

// CreateContainer is asked about each new container.
func (d *Driver) CreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.given[c.Id] = variable(c)
	adjustment := &api.ContainerAdjustment{}
	if cpus := d.wanted(c.Id); !cpus.IsEmpty() {
		adjustment.SetLinuxCPUSetCPUs(cpus.String())
	}
	if d.given[c.Id].IsEmpty() {
		return adjustment, nil, nil
	}
	return adjustment, d.updates(c.Id), nil
}

// RemoveContainer is told about each container that is gone.
func (d *Driver) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.given, c.Id)
	return nil
}

// updates are those of all containers but one.
func (d *Driver) updates(except string) (updates []*api.ContainerUpdate) {
	for id := range d.given {
		if cpus := d.wanted(id); id != except && !cpus.IsEmpty() {
			update := &api.ContainerUpdate{ContainerId: id, IgnoreFailure: true}
			update.SetLinuxCPUSetCPUs(cpus.String())
			updates = append(updates, update)
		}
	}
	return updates
}

// wanted are the CPUs that a container is to have; empty means that it is left alone.
func (d *Driver) wanted(id string) cpuset.CPUSet {
	if own := d.given[id]; !own.IsEmpty() {
		return own
	}
	shared := d.Shared
	for _, cpus := range d.given {
		shared = shared.Difference(cpus)
	}
	return shared
}

// variable returns the CPUs of a container's variable; empty if it has none.
func variable(c *api.Container) cpuset.CPUSet {
	for _, entry := range c.Env {
		if name, list, found := strings.Cut(entry, "="); found && strings.HasPrefix(name, Variable) {
			if cpus, err := cpuset.Parse(list); err == nil {
				return cpus
			}
		}
	}
	return cpuset.New()
}
