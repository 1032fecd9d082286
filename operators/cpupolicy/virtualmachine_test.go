// SPDX-License-Identifier: Apache-2.0

package cpupolicy

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// newVM returns a VirtualMachine with that domain and, unless it is empty, that affinity.
func newVM(t *testing.T, domain, affinity string) *virtv1.VirtualMachine {
	t.Helper()
	vm := &virtv1.VirtualMachine{Spec: virtv1.VirtualMachineSpec{Template: &virtv1.VirtualMachineInstanceTemplateSpec{}}}
	spec := &vm.Spec.Template.Spec
	for text, into := range map[string]any{domain: &spec.Domain, affinity: &spec.Affinity} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	return vm
}

const (
	plain  = `{cpu: {cores: 2}, resources: {limits: {cpu: 2, memory: 4Gi}, requests: {cpu: 125m, memory: 2730Mi}}}`
	pinned = `{cpu: {cores: 2, dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2, memory: 4Gi}, requests: {cpu: 125m, memory: 2730Mi}}}`
	equal  = `{cpu: {cores: 2, dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2, memory: 4Gi}, requests: {cpu: 2, memory: 4Gi}}}`
	zone   = `{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}}`
	only   = `{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: cpumanager, operator: In, values: ["true"]}]}]}}}`
	both   = `{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}, {key: cpumanager, operator: In, values: ["true"]}]}]}}}`
)

func TestMutateVirtualMachine(t *testing.T) {
	for _, test := range []struct {
		name                     string
		before                   string // domain; empty when the VM is created
		domain, affinity         string
		wantDomain, wantAffinity string
		unchanged, beingRemoved  bool
	}{
		{name: "created with dedicated CPUs", domain: pinned, wantDomain: equal, wantAffinity: only},
		{name: "given dedicated CPUs", before: plain, domain: pinned, affinity: zone, wantDomain: equal, wantAffinity: both},
		{name: "created as it must be", domain: equal, affinity: both, unchanged: true},
		{name: "created without dedicated CPUs", domain: plain, affinity: zone, unchanged: true},
		{name: "had them before, whatever else changes", before: pinned, domain: pinned, affinity: zone, unchanged: true},
		{name: "loses a finalizer while it is removed", before: plain, domain: pinned, unchanged: true, beingRemoved: true},
		{name: "limits alone", domain: `{cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2, memory: 4Gi}}}`,
			wantDomain: `{cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2, memory: 4Gi}, requests: {cpu: 2, memory: 4Gi}}}`, wantAffinity: only},
		{name: "requests alone", domain: `{cpu: {dedicatedCpuPlacement: true}, resources: {requests: {cpu: 2, memory: 4Gi}}}`,
			wantDomain: `{cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2, memory: 4Gi}, requests: {cpu: 2, memory: 4Gi}}}`, wantAffinity: only},
		{name: "cores and guest memory alone are KubeVirt's", domain: `{cpu: {cores: 2, dedicatedCpuPlacement: true}, memory: {guest: 4Gi}}`,
			wantDomain: `{cpu: {cores: 2, dedicatedCpuPlacement: true}, memory: {guest: 4Gi}}`, wantAffinity: only},
		{name: "other resources stay", domain: `{cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2}, requests: {cpu: 1, example.com/x: 1}}}`,
			wantDomain: `{cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2}, requests: {cpu: 2, example.com/x: 1}}}`, wantAffinity: only},
		{name: "each of several terms, but the empty one", domain: equal,
			affinity: `{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
				{matchExpressions: [{key: zone, operator: In, values: [a]}]}, {matchFields: [{key: metadata.name, operator: In, values: [n1]}]}, {}]}}}`,
			wantDomain: equal,
			wantAffinity: `{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
				{matchExpressions: [{key: zone, operator: In, values: [a]}, {key: cpumanager, operator: In, values: ["true"]}]},
				{matchFields: [{key: metadata.name, operator: In, values: [n1]}], matchExpressions: [{key: cpumanager, operator: In, values: ["true"]}]}, {}]}}}`},
		{name: "preferred affinity stays", domain: equal,
			affinity:   `{podAntiAffinity: {}, nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}]}}`,
			wantDomain: equal,
			wantAffinity: `{podAntiAffinity: {}, nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}],
				requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: cpumanager, operator: In, values: ["true"]}]}]}}}`},
		{name: "loses dedicated CPUs", before: equal, domain: plain, affinity: both, wantDomain: plain, wantAffinity: zone},
		{name: "loses dedicated CPUs and asked for nothing else", before: equal, domain: plain, affinity: only, wantDomain: plain, wantAffinity: `{nodeAffinity: {}}`},
		{name: "loses dedicated CPUs and has no affinity", before: equal, domain: plain, unchanged: true},
		{name: "asks for a node without the static policy by itself", before: equal, domain: plain,
			affinity:  `{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: cpumanager, operator: In, values: ["false"]}]}]}}}`,
			unchanged: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before *virtv1.VirtualMachine
			if test.before != "" {
				before = newVM(t, test.before, "")
			}
			after := newVM(t, test.domain, test.affinity)
			if test.beingRemoved {
				after.DeletionTimestamp = &metav1.Time{}
			}
			if test.unchanged {
				test.wantDomain, test.wantAffinity = test.domain, test.affinity
			}
			want := newVM(t, test.wantDomain, test.wantAffinity)
			want.DeletionTimestamp = after.DeletionTimestamp
			if changed := MutateVirtualMachine(before, after); changed == test.unchanged {
				t.Errorf("changed: %v", changed)
			}
			if got, want := text(t, after), text(t, want); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if !test.unchanged && MutateVirtualMachine(before, after) {
				t.Error("a second run changed it again")
			}
		})
	}
	if MutateVirtualMachine(nil, &virtv1.VirtualMachine{}) {
		t.Error("a machine without a template was changed")
	}
}

func text(t *testing.T, object any) string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestValidateVirtualMachine(t *testing.T) {
	const halves = `{cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 1500m}, requests: {cpu: 1500m}}}`
	for _, test := range []struct {
		name, before, after string
		runs, beingRemoved  bool
		err                 []string
	}{
		{name: "created with dedicated CPUs", after: equal},
		{name: "created with half a CPU", after: halves, err: []string{"spec.template.spec.domain.resources.limits.cpu", "1500m", "whole", "requests.cpu"}},
		{name: "created with no CPU", after: `{cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: "0"}}}`, err: []string{"limits.cpu", `"0"`}},
		{name: "a stopped machine changes", before: plain, after: equal},
		{name: "a stopped machine changes back", before: equal, after: plain},
		{name: "a running machine", before: plain, after: equal, runs: true, err: []string{"spec.template.spec.domain.cpu.dedicatedCpuPlacement", "VirtualMachineInstance", "stop it"}},
		{name: "a running machine changes back", before: equal, after: plain, runs: true, err: []string{"dedicatedCpuPlacement"}},
		{name: "a running machine changes something else, even what would not be accepted today", before: halves, after: halves, runs: true},
		{name: "a running machine that is being removed", before: plain, after: equal, runs: true, beingRemoved: true},
		{name: "created while an instance of that name is still there", after: equal, runs: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before *virtv1.VirtualMachine
			if test.before != "" {
				before = newVM(t, test.before, "")
			}
			after := newVM(t, test.after, "")
			if test.beingRemoved {
				after.DeletionTimestamp = &metav1.Time{}
			}
			var err error
			if errs := ValidateVirtualMachine(before, after, test.runs); errs != nil {
				err = errs.ToAggregate()
			}
			checkError(t, err, test.err)
		})
	}
}
