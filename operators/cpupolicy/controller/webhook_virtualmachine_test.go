// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/testenv"
)

// object returns an object of KubeVirt.
func object(t *testing.T, kind, name, rest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	text := fmt.Sprintf("{apiVersion: kubevirt.io/v1, kind: %s, metadata: {namespace: default, name: %s}, %s}", kind, name, rest)
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func newVM(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "VirtualMachine", name, fmt.Sprintf("spec: {template: {spec: %s}}", spec))
}

func (h hooks) besideKubeVirt(t *testing.T) {
	admin := h.admin(t)
	kubevirt := object(t, "KubeVirt", "kubevirt", "spec: {}")
	admin.create(t, kubevirt)
	admin.create(t, object(t, "VirtualMachineInstance", "pinned",
		"spec: {domain: {cpu: {dedicatedCpuPlacement: true}, devices: {}}}, status: {phase: Running, nodeName: routed}"))
	checkRefused(t, admin.ask("routed", requested), http.StatusConflict, "\nKubeVirt default/kubevirt has its feature gate CPUManager off")
	checkRefused(t, admin.ask("routed", backAgain), http.StatusConflict, "\nVirtualMachineInstance default/pinned has dedicatedCpuPlacement, and runs on the node; stop it")
	if len(admin.warnings) != 1 {
		t.Errorf("the warnings are %q, want one about the feature gate", admin.warnings)
	}
	// The last static node is left. One machine is stopped, and the other one is the one that runs.
	stopped := newVM(t, "stopped", "{domain: {cpu: {dedicatedCpuPlacement: true}, devices: {}}}")
	same := newVM(t, "pinned", "{domain: {cpu: {dedicatedCpuPlacement: true}, devices: {}}}")
	admin.create(t, stopped)
	admin.create(t, same)
	admin.warnings = nil
	checkRefused(t, admin.ask("routed", backAgain), http.StatusConflict, "VirtualMachineInstance default/pinned has dedicatedCpuPlacement")
	if len(admin.warnings) != 2 || !strings.Contains(strings.Join(admin.warnings, "\n"), "VirtualMachine default/stopped has dedicatedCpuPlacement and does not run: no node with the policy static is left for it to start on") {
		t.Errorf("the warnings are %q, want one about the feature gate and one about the stopped machine", admin.warnings)
	}
	for _, vm := range []client.Object{stopped, same} {
		if err := admin.Delete(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	// What make install does with KUBEVIRT_GATE=1. It takes nothing away.
	gates := func(gates string) {
		t.Helper()
		patch := `{"spec":{"configuration":{"developerConfiguration":` + gates + `}}}`
		if err := admin.Patch(t.Context(), kubevirt, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	switchOn := func(code int, want string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), testenv.Module()+"/../scripts/operators-gate.sh", testenv.Kubectl(t))
		command.Env = append(os.Environ(), "KUBECONFIG="+h.i.Kubeconfig)
		if output, err := command.CombinedOutput(); command.ProcessState.ExitCode() != code || !strings.Contains(string(output), want) {
			t.Errorf("operators-gate.sh prints %q (%v), want %q and the exit code %d", output, err, want, code)
		}
	}
	gates(`{"disabledFeatureGates":["CPUManager"]}`)
	switchOn(1, "KubeVirt default/kubevirt has CPUManager in spec.configuration.developerConfiguration.disabledFeatureGates")
	gates(`{"disabledFeatureGates":null,"featureGates":["Snapshot","HotplugVolumes"]}`)
	switchOn(0, "KubeVirt default/kubevirt: the feature gate CPUManager is on now")
	switchOn(0, "KubeVirt default/kubevirt: the feature gate CPUManager is on\n")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(kubevirt), kubevirt); err != nil {
		t.Fatal(err)
	}
	if on, _, err := unstructured.NestedStringSlice(kubevirt.Object, "spec", "configuration", "developerConfiguration", "featureGates"); err != nil || !slices.Equal(on, []string{"Snapshot", "HotplugVolumes", "CPUManager"}) {
		t.Errorf("the feature gates are %q (%v)", on, err)
	}
	checkRefused(t, admin.ask("routed", requested, client.DryRunAll), 0)
}

func (h hooks) vms(t *testing.T) {
	admin := h.admin(t)
	set := func(vm client.Object, dedicated string) error {
		patch := `{"spec":{"template":{"spec":{"domain":{"cpu":{"dedicatedCpuPlacement":` + dedicated + `}}}}}}`
		return admin.Patch(t.Context(), vm, client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	const affinity = `{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: cpumanager, operator: In, values: ["true"]}]}]}}}`

	created := newVM(t, "created", "{domain: {newer: 1, devices: {}, cpu: {cores: 2, dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2}, newer: 2}}}")
	admin.create(t, created)
	checkSpec(t, created, "{domain: {newer: 1, devices: {}, cpu: {cores: 2, dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2}, requests: {cpu: \"2\"}, newer: 2}}, affinity: "+affinity+"}")
	checkRefused(t, admin.Create(t.Context(), newVM(t, "half", "{domain: {devices: {}, cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 1500m}}}}")),
		http.StatusUnprocessableEntity, `VirtualMachine.kubevirt.io "half" is invalid`, "spec.template.spec.domain.resources.limits.cpu", "1500m")

	vm := newVM(t, "changed", "{newer: 3, domain: {devices: {}, cpu: {cores: 2}}}")
	admin.create(t, vm)
	vmi := object(t, "VirtualMachineInstance", "changed", "spec: {domain: {devices: {}}}, status: {phase: Running}")
	admin.create(t, vmi)
	checkRefused(t, set(vm.DeepCopy(), "true"), http.StatusUnprocessableEntity, "spec.template.spec.domain.cpu.dedicatedCpuPlacement", "has a VirtualMachineInstance; stop it")
	if err := admin.Delete(t.Context(), vmi); err != nil {
		t.Fatal(err)
	}
	checkRefused(t, set(vm, "true"), 0)
	checkSpec(t, vm, "{newer: 3, domain: {devices: {}, cpu: {cores: 2, dedicatedCpuPlacement: true}}, affinity: "+affinity+"}")
	checkRefused(t, set(vm, "false"), 0)
	checkSpec(t, vm, "{newer: 3, domain: {devices: {}, cpu: {cores: 2, dedicatedCpuPlacement: false}}, affinity: {nodeAffinity: {}}}")
}

// checkSpec compares the template's spec of a VM.
func checkSpec(t *testing.T, vm *unstructured.Unstructured, want string) {
	t.Helper()
	spec, _, err := unstructured.NestedMap(vm.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	checkJSON(t, got, want)
}

func checkJSON(t *testing.T, got []byte, want string) {
	t.Helper()
	var texts [2]string
	for at, text := range []string{string(got), want} {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		texts[at] = string(data)
	}
	if texts[0] != texts[1] {
		t.Errorf("got  %s\nwant %s", texts[0], texts[1])
	}
}

func TestAMutationKeepsWhatTheTypesDoNotKnow(t *testing.T) {
	for name, test := range map[string]struct{ before, after, want string }{
		"no resources": {"", "{domain: {newer: {a: 1}, cpu: {dedicatedCpuPlacement: true}}, affinity: {nodeAffinity: {newer: 1}}, newer: [1]}",
			`{domain: {newer: {a: 1}, cpu: {dedicatedCpuPlacement: true}}, newer: [1],
			affinity: {nodeAffinity: {newer: 1, requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: cpumanager, operator: In, values: ["true"]}]}]}}}}`},
		"null in place of objects": {"", "{domain: {cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2}, requests: null}}, affinity: null}",
			`{domain: {cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2}, requests: {cpu: "2"}}},
			affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: cpumanager, operator: In, values: ["true"]}]}]}}}}`},
		"a number that is no text": {"", "{domain: {cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2, memory: 1073741824}, requests: {cpu: 2}}}}",
			`{domain: {cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 2, memory: 1073741824}, requests: {cpu: 2, memory: "1073741824"}}},
			affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: cpumanager, operator: In, values: ["true"]}]}]}}}}`},
		"terms, and what is in them": {"", `{domain: {cpu: {dedicatedCpuPlacement: true}}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {newer: 1,
			nodeSelectorTerms: [{newer: 2, matchExpressions: [{key: zone, operator: In, values: [a], newer: 3}]}, {matchFields: [{key: metadata.name, operator: In, values: [n1], newer: 4}]}]}}}}`,
			`{domain: {cpu: {dedicatedCpuPlacement: true}}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {newer: 1,
			nodeSelectorTerms: [{newer: 2, matchExpressions: [{key: zone, operator: In, values: [a], newer: 3}, {key: cpumanager, operator: In, values: ["true"]}]},
			{matchFields: [{key: metadata.name, operator: In, values: [n1], newer: 4}], matchExpressions: [{key: cpumanager, operator: In, values: ["true"]}]}]}}}}`},
		"a requirement that goes, before another": {"{domain: {cpu: {dedicatedCpuPlacement: true}}}",
			`{domain: {cpu: {}}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {
			nodeSelectorTerms: [{newer: 2, matchExpressions: [{key: cpumanager, operator: In, values: ["true"]}, {key: zone, operator: In, values: [a], newer: 3}]}]}}}}`,
			`{domain: {cpu: {}}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {
			nodeSelectorTerms: [{newer: 2, matchExpressions: [{key: zone, operator: In, values: [a], newer: 3}]}]}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			raw := func(spec string) (data []byte, typed *virtv1.VirtualMachine) {
				data, err := newVM(t, "a", spec).MarshalJSON()
				if err == nil {
					err = json.Unmarshal(data, &typed)
				}
				if err != nil {
					t.Fatal(err)
				}
				return data, typed
			}
			var before *virtv1.VirtualMachine
			if test.before != "" {
				_, before = raw(test.before)
			}
			written, after := raw(test.after)
			as := after.DeepCopy()
			if !cpupolicy.MutateVirtualMachine(before, after) {
				t.Fatal("it changes nothing")
			}
			got, err := transferChanges(written, as, after)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := raw(test.want)
			checkJSON(t, got, string(want))
		})
	}
}

// Nobody who only reaches the port learns which machines there are.
func (h hooks) knowsItsVMs(t *testing.T) {
	admin := h.admin(t)
	for _, name := range []string{"there", "idle"} {
		admin.create(t, newVM(t, name, "{domain: {cpu: {cores: 2}, devices: {}}}"))
	}
	admin.create(t, object(t, "VirtualMachineInstance", "there", "spec: {domain: {devices: {}}}"))
	for _, name := range []string{"there", "idle", "nobody"} {
		raw := func(cpu string) runtime.RawExtension {
			data, err := newVM(t, name, "{domain: {cpu: {"+cpu+"}, devices: {}}}").MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			return runtime.RawExtension{Raw: data}
		}
		answer := h.post(t, "/cpupolicy/validate-virtualmachine", admissionv1.AdmissionRequest{
			UID: "x", Namespace: "default", Name: name, Operation: admissionv1.Update, OldObject: raw("cores: 2"), Object: raw("cores: 2, dedicatedCpuPlacement: true"),
		})
		if want := fmt.Sprintf("the object of this request %q not found", name); answer.Allowed || answer.Result.Message != want {
			t.Errorf("%s: the answer is %v, %q, want %q", name, answer.Allowed, answer.Result.Message, want)
		}
	}
}

// A quantity that takes minutes to read keeps nobody busy, wherever it is.
func (h hooks) readsNoEndlessQuantities(t *testing.T) {
	for _, test := range []struct{ name, vm string }{
		{"a request", `{"spec":{"template":{"spec":{"domain":{"devices":{},"cpu":{"dedicatedCpuPlacement":true},"resources":{"requests":{"cpu":"1e-99999999"}}}}}}}`},
		{"a request as a number", `{"spec":{"template":{"spec":{"domain":{"devices":{},"cpu":{"dedicatedCpuPlacement":true},"resources":{"requests":{"cpu":1e-99999999}}}}}}}`},
		{"the guest's memory", `{"spec":{"template":{"spec":{"domain":{"devices":{},"memory":{"guest":" 1E-99999999"}}}}}}`},
		{"the first of two equal keys", `{"spec":{"template":{"spec":{"domain":{"devices":{},"resources":{"requests":{"cpu":"1e-99999999","cpu":"1"}}}}}}}`},
		{"beside a key of another case", `{"spec":{"template":{"spec":{"domain":{"devices":{},"resources":{"requests":{"cpu":"1e-99999999"}}}}}},"Spec":{"Template":{"Spec":{}}}}`},
		{"a volume", `{"spec":{"dataVolumeTemplates":[{"spec":{"storage":{"resources":{"requests":{"storage":"1e-99999999"}}}}}],"template":{"spec":{"domain":{"devices":{}}}}}}`},
	} {
		for _, path := range []string{"/cpupolicy/mutate-virtualmachine", "/cpupolicy/validate-virtualmachine"} {
			vm := strings.Replace(test.vm, "{", `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"a","namespace":"default"},`, 1)
			answer := h.post(t, path, admissionv1.AdmissionRequest{UID: "x", Namespace: "default", Name: "a", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(vm)}})
			if answer.Allowed || !strings.Contains(answer.Result.Message, "exponent") {
				t.Errorf("%s, %s: the answer is %v, %v", test.name, path, answer.Allowed, answer.Result)
			}
		}
	}
}
