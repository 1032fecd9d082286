// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// rke2Config is the configuration of rke2, and with .d the directory of its drop-ins.
const rke2Config = "/etc/rancher/rke2/config.yaml"

// rke2Log is where rke2 writes the log of its kubelet.
const rke2Log = "/var/lib/rancher/rke2/agent/logs/kubelet.log"

// rke2Units are the units of rke2, of which a host runs one.
var rke2Units = []string{"rke2-server.service", "rke2-agent.service"}

// rke2Driver is a kubelet that rke2 runs.
type rke2Driver struct {
	host
	*systemd
	unit string
}

func (h host) rke2Driver(ctx context.Context, plan *Plan) (driver, error) {
	s, err := dialSystemd(ctx, h.disk)
	if err != nil {
		return nil, err
	}
	d := &rke2Driver{host: h, systemd: s}
	if plan != nil {
		d.unit = plan.Unit
		return d, nil
	}
	if d.unit, err = s.rke2Unit(ctx); err != nil {
		s.close()
		return nil, err
	}
	return d, nil
}

// rke2Unit returns the unit of rke2 that runs.
func (s *systemd) rke2Unit(ctx context.Context) (string, error) {
	for _, name := range rke2Units {
		u, err := s.properties(ctx, name)
		if err != nil {
			return "", err
		}
		if u.runs() {
			return name, nil
		}
	}
	return "", fmt.Errorf("neither %s runs", strings.Join(rke2Units, " nor "))
}

func (d *rke2Driver) start(ctx context.Context) error { return d.startUnit(ctx, d.unit) }
func (d *rke2Driver) kill(ctx context.Context) error  { return d.killUnit(ctx, d.unit) }

// stop also waits for the kubelet, a child of rke2's process that ends after it.
func (d *rke2Driver) stop(ctx context.Context) error {
	kubelet, err := d.pid(ctx)
	if err != nil {
		return err
	}
	if err := d.stopUnit(ctx, d.unit); err != nil || kubelet == 0 {
		return err
	}
	for ctx.Err() == nil {
		if _, err := os.Stat(d.host.disk.at(fmt.Sprintf("/proc/%d", kubelet))); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		sleep(ctx, d.interval)
	}
	return fmt.Errorf("kubelet, process %d: %w", kubelet, context.Cause(ctx))
}

func (d *rke2Driver) pid(ctx context.Context) (int, error) {
	u, err := d.properties(ctx, d.unit)
	if err != nil {
		return 0, err
	}
	return d.below(u.mainPID, "kubelet")
}

// lastError is rke2's own error if it has started no kubelet.
func (d *rke2Driver) lastError(ctx context.Context, plan *Plan, since time.Time) string {
	return cmp.Or(d.errorInFile(rke2Log, plan.LogSize), errorInJournal(ctx, d.unit, since))
}

// kubelet also has what rke2's configuration says now.
func (d *rke2Driver) kubelet(ctx context.Context) (*kubelet, error) {
	u, err := d.properties(ctx, d.unit)
	if err != nil {
		return nil, err
	}
	pid, err := d.pid(ctx)
	if err != nil {
		return nil, err
	}
	k, err := d.kubeletOf(pid, nil, u.files, "")
	if err != nil {
		return nil, err
	}
	args, err := readRKE2(d.host.disk)
	if err != nil {
		return nil, err
	}
	return k, d.configure(k, effective(args))
}

// configure gives a kubelet the flags with which rke2 starts it next: those that it has, and before
// them those of rke2's configuration.
func (h host) configure(k *kubelet, next []rke2Arg) error {
	var args []string
	for _, arg := range next {
		args = append(args, "--"+arg.name+"="+arg.value)
	}
	// Options that nobody sets any longer are gone when it starts.
	if _, inUnit := findFlag(h.disk, k.files, optionsFlag); !inUnit {
		k.flags.options = nil
	}
	return k.flags.parse(args)
}

func (d *rke2Driver) plan(ctx context.Context, policy operation.Policy) (*Plan, error) {
	k, err := d.kubelet(ctx)
	if err != nil {
		return nil, err
	}
	args, err := readRKE2(d.host.disk)
	if err != nil {
		return nil, err
	}
	plan, err := d.planRKE2(ctx, k, args, policy, d.unit)
	plan.LogSize = d.sizeOf(rke2Log)
	return plan, err
}

// planRKE2 drafts the switch of a kubelet that gets its arguments from rke2's configuration.
func (h host) planRKE2(ctx context.Context, k *kubelet, args []rke2Arg, policy operation.Policy, unit string) (*Plan, error) {
	d := draft{ours: func(content []byte) bool {
		return slices.ContainsFunc(operation.Policies(), func(policy operation.Policy) bool {
			return strings.TrimSpace(string(content)) == strings.TrimSpace(rke2DropIn(policy))
		})
	}}
	d.Unit, d.DropIn, d.Content = unit, filepath.Join(rke2Config+".d", dropInName+".yaml"), rke2DropIn(policy)
	if _, err := os.Stat(h.disk.follow(filepath.Dir(rke2Config))); err != nil {
		d.refuse(err)
	}
	if at, found := findFlag(h.disk, k.files, policyFlag); found {
		d.refuse(fmt.Errorf("%s: %s overrides every drop-in; remove it, and restart %s", at, policyFlag, unit))
	}
	for _, arg := range args {
		switch {
		case !before(d.DropIn, arg.file): // as rke2 sorts them, too
		case arg.replaces:
			d.refuse(fmt.Errorf("%s: kubelet-arg replaces what %s adds; write kubelet-arg+, or give the file another name that sorts before", arg.place, d.DropIn))
		case arg.name == policyFlag:
			d.refuse(fmt.Errorf("%s: sets %s, and rke2 reads it after %s; remove it", arg.place, policyFlag, d.DropIn))
		}
	}
	next := effective(args)
	d.next, d.nextFrom = k.config.policy()
	if arg := last(next, policyFlag); arg.value != "" {
		d.next, d.nextFrom = arg.value, arg.place.String()
	}
	d.refuse(h.configure(k, next))
	if policy == operation.None {
		options := last(next, optionsFlag)
		at, has := options.place, options.value != ""
		if !has {
			at, has = findFlag(h.disk, k.files, optionsFlag)
		}
		if has {
			d.refuse(fmt.Errorf(optionsText, at, optionsFlag, "it"))
		}
		k.flags.options = nil // they are from there
		d.refuse(h.checkOptions(k))
	}
	d.reserved = reservesCPU(k.flags, k.config)
	return h.finish(ctx, k, policy, d)
}

func rke2DropIn(policy operation.Policy) string {
	return "kubelet-arg+:\n- \"" + policyFlag + "=" + string(policy) + "\"\n"
}

// rke2Arg is an argument of the kubelet in rke2's configuration.
type rke2Arg struct {
	place
	name, value string
	// replaces means that this is no argument, but drops all that were read before it.
	replaces bool
}

// effective returns the arguments with which rke2 starts the kubelet: it leaves out none of those that have
// the same name (k3s, pkg/daemons/config, GetArgs).
func effective(args []rke2Arg) []rke2Arg {
	for i := len(args) - 1; i >= 0; i-- {
		if args[i].replaces {
			return args[i+1:]
		}
	}
	return args
}

// last returns the last argument of a name, or the zero value.
func last(args []rke2Arg, name string) (found rke2Arg) {
	for _, arg := range args {
		if arg.name == name {
			found = arg
		}
	}
	return found
}

// readRKE2 returns the kubelet's arguments in the order in which rke2 reads them: those of its
// configuration, then those of the drop-ins by name. A key with a plus adds to those of earlier
// files, and one without replaces them (k3s, pkg/configfilearg, parser.go).
func readRKE2(disk hostDisk) ([]rke2Arg, error) {
	files := []string{rke2Config}
	entries, err := os.ReadDir(disk.follow(rke2Config + ".d"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if extension := strings.ToLower(filepath.Ext(entry.Name())); !entry.IsDir() && (extension == ".yaml" || extension == ".yml") {
			files = append(files, filepath.Join(rke2Config+".d", entry.Name()))
		}
	}
	var args []rke2Arg
	for _, file := range files {
		data, err := os.ReadFile(disk.follow(file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		object, err := objectOf(file, data)
		if err != nil {
			return nil, err
		}
		for pair := range slices.Chunk(object, 2) {
			key, plus := strings.CutSuffix(pair[0].Value, "+")
			if key != "kubelet-arg" {
				continue
			}
			if !plus {
				args = append(args, rke2Arg{place: place{file, pair[0].Line}, replaces: true})
			}
			values := pair[1].Content
			if pair[1].Kind != yaml.SequenceNode {
				values = pair[1:]
			}
			for _, value := range values {
				arg := rke2Arg{place: place{file, value.Line}}
				arg.name, arg.value, _ = strings.Cut(strings.TrimLeft(value.Value, "-"), "=")
				arg.name = strings.ReplaceAll(arg.name, "_", "-") // which the kubelet does, too
				args = append(args, arg)
			}
		}
	}
	return args, nil
}
