// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Names returns the names of all components, and of what Run has started.
func (c *Cluster) Names() []string {
	var names []string
	for _, component := range append(c.components(), c.programs()...) {
		names = append(names, component.Name())
	}
	slices.Sort(names)
	return names
}

// Component returns the component with a name.
func (c *Cluster) Component(name string) (Component, error) {
	for _, component := range append(c.components(), c.programs()...) {
		if component.Name() == name {
			return component, nil
		}
	}
	return nil, fmt.Errorf("there is no component %q; the cluster has %s", name, strings.Join(c.Names(), ", "))
}

// Restart stops a component and starts it again, with the same arguments and environment, and with
// the program that is at its path now. One that has crashed is started as it was. It waits until the
// component is ready. With kube-apiserver it restarts the controllers; see RestartAPIServer.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	component, err := c.Component(name)
	if err != nil {
		return err
	}
	restarted := []Component{component}
	if component == c.APIServer {
		controllers, err := c.controllers()
		if err != nil {
			return err
		}
		restarted = append(restarted, controllers...)
	}
	var running []Component
	for _, one := range restarted {
		as, err := c.asRunning(one)
		if err != nil {
			return err
		}
		running = append(running, as)
	}
	for _, one := range slices.Backward(running) {
		if err := one.Stop(5 * time.Second); err != nil {
			return err
		}
	}
	var before time.Time
	if component == c.Kubelet {
		before = c.lastReport(ctx)
	}
	for i, one := range running {
		if err := one.Start(); err != nil {
			return err
		}
		if i == 0 && component == c.APIServer {
			if err := c.await(ctx, one, 2*time.Minute, ready(c.Client)); err != nil {
				return err
			}
		}
	}
	switch component {
	case c.Kubelet:
		return c.awaitNode(ctx, before)
	case c.Containerd:
		c.Config.Tools = filepath.Dir(running[0].Args()[0]) // ctr is in the same directory
		return c.awaitContainerd(ctx)
	}
	// What cannot run ends at once.
	began := time.Now()
	return c.await(ctx, component, time.Minute, func(context.Context) error {
		if time.Since(began) < 2*time.Second {
			return errors.New("it has just started")
		}
		return nil
	})
}

// Program returns the path of the program that a component runs, or ran before it crashed. One that was built again
// in the meantime has a new file at that path.
func (c *Cluster) Program(name string) (string, error) {
	component, err := c.Component(name)
	if err != nil {
		return "", err
	}
	if pid := component.PID(); pid != 0 {
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return strings.TrimSuffix(program, " (deleted)"), err
	}
	as, err := c.asRunning(component)
	if err != nil {
		return "", err
	}
	if len(as.Args()) == 0 {
		return "", fmt.Errorf("the program of %s is not known", name)
	}
	return filepath.EvalSymlinks(as.Args()[0])
}

// asRunning returns a component with the arguments and the environment of its process, or of the one that has
// crashed.
func (c *Cluster) asRunning(component Component) (Component, error) {
	if c.Config.Supervisor == Systemd {
		return component, nil // the unit has them
	}
	pid := component.PID()
	if pid == 0 {
		if p, ok := component.(*process); ok {
			if id, err := p.last(); err == nil && len(id.Args) > 0 {
				return p.with(id.Args, id.Env), nil
			}
		}
		return nil, fmt.Errorf("%s is not running, and was not started since it was stopped; its log is %s", component.Name(), component.Log())
	}
	running, err := procfs.NewProc(pid)
	if err != nil {
		return nil, err
	}
	args, err := running.CmdLine()
	if err != nil {
		return nil, err
	}
	env, err := running.Environ()
	if err != nil {
		return nil, err
	}
	return component.(*process).with(args, env), nil
}
