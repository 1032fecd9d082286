// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	cliflag "k8s.io/component-base/cli/flag"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// dropInName is the name of the drop-in with the policy, without its end: Harvester's.
const dropInName = "99-z01-harvester-cpu-manager"

// planDropIn drafts the switch of a kubelet that reads drop-ins of its --config-dir. prepare says
// how it gets one.
func (h host) planDropIn(ctx context.Context, k *kubelet, policy operation.Policy, unit, prepare string) (*Plan, error) {
	if k.flags.configDir == "" {
		return nil, fmt.Errorf("the kubelet has no --config-dir; %s", prepare)
	}
	d := draft{reserved: reservesCPU(k.flags, k.config), ours: func(content []byte) bool {
		return slices.ContainsFunc(operation.Policies(), func(policy operation.Policy) bool { return string(content) == kubeletDropIn(policy) })
	}}
	d.Unit, d.DropIn, d.Content = unit, filepath.Join(k.flags.configDir, dropInName+".conf"), kubeletDropIn(policy)
	d.next, d.nextFrom = k.config.policy()
	if k.flags.policy != "" {
		d.next, d.nextFrom = k.flags.policy, "by a flag"
		d.refuse(fmt.Errorf("%s: the flag --%s=%s overrides every drop-in; remove it, and restart the kubelet", h.flagPlace(k, policyFlag), policyFlag, k.flags.policy))
	}
	for _, file := range k.config.files {
		// The file itself comes before all drop-ins, whatever its name.
		if at, sets := file.fields[policyField]; sets && !file.base && before(d.DropIn, file.path) {
			d.refuse(fmt.Errorf("%s: sets %s, and the kubelet reads it after %s; remove the field", at, policyField, d.DropIn))
		}
	}
	if policy == operation.None {
		d.refuse(h.checkOptions(k))
	}
	return h.finish(ctx, k, policy, d)
}

const optionsText = "%s: the kubelet does not start under the policy none with %s, which is for the policy static; remove %s"

// checkOptions returns an error if the kubelet has options for the policy static. Beside none it
// does not start with them (pkg/kubelet/cm/cpumanager, NewNonePolicy).
func (h host) checkOptions(k *kubelet) error {
	if len(k.flags.options) > 0 {
		return fmt.Errorf(optionsText, h.flagPlace(k, optionsFlag), "--"+optionsFlag+"="+cliflag.NewMapStringStringNoSplit(&k.flags.options).String(), "the flag")
	}
	if len(k.config.CPUManagerPolicyOptions) > 0 {
		return fmt.Errorf(optionsText, k.config.places[optionsField], optionsField, "the field")
	}
	return nil
}

func kubeletDropIn(policy operation.Policy) string {
	return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + policyField + ": " + string(policy) + "\n"
}

// kubeletDriver is a kubelet that is a unit of systemd.
type kubeletDriver struct {
	host
	*systemd
	unit string
}

const defaultUnit = "kubelet.service"

func (h host) kubeletDriver(ctx context.Context, plan *Plan) (driver, error) {
	unit := cmp.Or(h.settings.Unit, defaultUnit)
	if plan != nil {
		unit = plan.Unit
	}
	s, err := dialSystemd(ctx, h.disk)
	if err != nil {
		return nil, err
	}
	return &kubeletDriver{host: h, systemd: s, unit: unit}, nil
}

func (d *kubeletDriver) plan(ctx context.Context, policy operation.Policy) (*Plan, error) {
	k, err := d.kubelet(ctx)
	if err != nil {
		return nil, err
	}
	return d.planDropIn(ctx, k, policy, d.unit, "run: partition-agent cpu-policy prepare")
}

func (d *kubeletDriver) kubelet(ctx context.Context) (*kubelet, error) {
	unit, err := d.properties(ctx, d.unit)
	if err != nil {
		return nil, err
	}
	if err := unit.check(d.unit); err != nil {
		return nil, err
	}
	pid, err := d.pid(ctx)
	if err != nil {
		return nil, err
	}
	return d.kubeletOf(pid, unit.execStart, unit.files, "")
}
