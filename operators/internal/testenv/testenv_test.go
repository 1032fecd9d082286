// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	cpupolicyv1alpha1 "workload.openshift.io/operators/api/cpupolicy/v1alpha1"
)

func TestMain(m *testing.M) {
	Main(m, Programs{"test": func() int {
		// A test binary that is about to be killed: it says where its control plane is.
		c, err := start()
		if err != nil {
			fmt.Println("failed:", err)
			return 1
		}
		fmt.Println("started:", c.dir)
		select {}
	}}, cpupolicyv1alpha1.AddToScheme)
}

func TestTheControlPlaneHasTheCRDs(t *testing.T) {
	c := Start(t)
	var policies cpupolicyv1alpha1.CPUManagerPolicyList
	if err := c.Client.List(t.Context(), &policies); err != nil {
		t.Fatal(err)
	}
}

func TestKubeVirtHasItsSchemas(t *testing.T) {
	c := Start(t)
	KubeVirt(t, c, "spec.newer")
	for name, test := range map[string]struct{ spec, refused string }{
		"a machine":                           {"{newer: 1, template: {spec: {domain: {devices: {}}}}}", ""},
		"a machine without a template":        {"{newer: 1}", "spec.template: Required value"},
		"a machine without devices":           {"{template: {spec: {domain: {}}}}", "spec.template.spec.domain.devices: Required value"},
		"a number of cores that is no number": {"{template: {spec: {domain: {devices: {}, cpu: {cores: two}}}}}", "spec.template.spec.domain.cpu.cores: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte("{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {namespace: default, name: a}, spec: "+test.spec+"}"), &vm.Object); err != nil {
				t.Fatal(err)
			}
			err := c.Client.Create(t.Context(), vm, client.DryRunAll)
			switch _, kept, _ := unstructured.NestedFieldNoCopy(vm.Object, "spec", "newer"); {
			case test.refused == "" && (err != nil || !kept):
				t.Errorf("it is %v (%v), want one that is stored", vm.Object, err)
			case test.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("the answer is %v, want a refusal with %q", err, test.refused)
			}
		})
	}
}

func TestNothingIsLeftOfATestBinaryThatWasKilled(t *testing.T) {
	Start(t)
	killed := Run(t, "test")
	var dir string
	Eventually(t, time.Minute, func() error {
		line, after, _ := strings.Cut(killed.Output(), "started: ")
		if dir = strings.TrimSpace(after); dir == "" {
			return fmt.Errorf("it has not started: %s", line)
		}
		return nil
	})
	if got := processes(t, dir); len(got) < 2 {
		t.Fatalf("before, there are %q", got)
	}
	killed.Kill()
	Eventually(t, 20*time.Second, func() error {
		if left := processes(t, dir); len(left) > 0 {
			return fmt.Errorf("there still are %q", left)
		}
		if _, err := os.Stat(dir); err == nil {
			return fmt.Errorf("%s is still there", dir)
		}
		return nil
	})
}

// processes returns the command lines that name a directory.
func processes(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// A process that has ended has none.
		if data, _ := os.ReadFile(file); strings.Contains(string(data), dir) {
			found = append(found, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}
