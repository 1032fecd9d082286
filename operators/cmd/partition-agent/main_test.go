// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/cpupolicy/agentpod"
	"workload.openshift.io/operators/cpupolicy/executor"
)

// call runs a command, and returns what it prints.
func call(t *testing.T, command *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var output bytes.Buffer
	command.SetOut(&output)
	command.SetArgs(args)
	command.SilenceErrors, command.SilenceUsage = true, true
	err := command.ExecuteContext(t.Context())
	return output.String(), err
}

// host returns the root of a host with these files.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var/lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestWhatCannotBeginHasAResult(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"settings that are none": {map[string]string{executor.SettingsFile: "unti: x\n"}, `unknown field "unti"`},
		"a host without systemd": {nil, "/run/systemd/private"},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			// A pod that fails would be replaced.
			output, err := call(t, newCommand(), "cpu-policy", "run", "--host-root="+host(t, test.files), "--termination-log="+log, `--request={"id":"op","policy":"static","driver":"kubelet"}`)
			if err != nil || !strings.Contains(output, "operation op: failed at step validate: ") {
				t.Errorf("it prints %q, %v", output, err)
			}
			message, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			if result, err := operation.ParseResult(message); err != nil || result.Outcome != operation.Failed || !strings.Contains(result.Message, test.want) {
				t.Errorf("the termination message is %s (%v), want %q", message, err, test.want)
			}
		})
	}
}

func TestWhatHasNoResultSaysWhy(t *testing.T) {
	for name, args := range map[string][]string{
		"run":    {`--request={"id":"op","policy":"static","driver":"kubelet"}`},
		"settle": {"--operation=op"},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			_, err := call(t, newCommand(), append([]string{"cpu-policy", name, "--host-root=" + host(t, map[string]string{executor.Directory + "/journal.json": "{"}), "--termination-log=" + log}, args...)...)
			if err == nil {
				t.Fatal("there is no error")
			}
			message, readErr := os.ReadFile(log)
			if _, err := operation.ParseResult(message); readErr != nil || err == nil || !strings.Contains(string(message), "journal.json: unexpected end of JSON input") {
				t.Errorf("the termination message is %q, %v, %v", message, readErr, err)
			}
		})
	}
}

func TestAnInvalidRequestIsNotCarriedOut(t *testing.T) {
	root := host(t, nil)
	_, err := call(t, newCommand(), "cpu-policy", "run", "--host-root="+root, `--request={"id":"op","policy":"dynamic","driver":"kubelet"}`)
	if err == nil || !strings.Contains(err.Error(), `--request: request of operation "op": policy: Unsupported value: "dynamic"`) {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, executor.Directory)); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}
}

func TestAnObservationIsPrintedWithWhatIsMissing(t *testing.T) {
	output, err := call(t, newCommand(), "cpu-policy", "observe", "--host-root="+host(t, map[string]string{
		executor.Directory + "/journal.json": `{"request":{"id":"op","policy":"none","driver":"kubelet"},"step":"healthy"}`,
	}))
	if err == nil || !strings.Contains(err.Error(), "systemd of the host") {
		t.Errorf("the error is %v", err)
	}
	var observed operation.Observation
	if err := json.Unmarshal([]byte(output), &observed); err != nil || observed.Operation != "op" || observed.Step != "healthy" {
		t.Errorf("the output is %s, %v", output, err)
	}
	if _, err := call(t, newCommand(), "cpu-policy", "observe", "--driver=k3s", "--host-root="+host(t, nil)); err == nil || !strings.Contains(err.Error(), `driver "k3s"`) {
		t.Errorf("the error of an unknown driver is %v", err)
	}
}

func TestAnObservationIsATerminationMessage(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"of a host without systemd":           {nil, "/run/systemd/private"},
		"with a journal that is damaged":      {map[string]string{executor.Directory + "/journal.json": "{"}, "journal.json: unexpected end of JSON input"},
		"of a host with wrong settings":       {map[string]string{executor.SettingsFile: "unti: x\n"}, `unknown field "unti"`},
		"with a reason that is much too long": {map[string]string{executor.SettingsFile: "unit: /" + strings.Repeat("x", 5000)}, `unit: "/x`},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			output, err := call(t, newCommand(), "cpu-policy", "observe", "--host-root="+host(t, test.files), "--termination-log="+log)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v", err)
			}
			message, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			observed, err := operation.ParseObservation(message)
			for _, policy := range operation.Policies() {
				if err != nil || !strings.Contains(observed.Refused[policy].String(), test.want) {
					t.Errorf("the termination message is %s (%v), want %q", message, err, test.want)
				}
			}
			if len(output) < len(message) {
				t.Errorf("it prints %s, which is less than the termination message", output)
			}
		})
	}
	const nowhere = "/nowhere/log"
	if output, err := call(t, newCommand(), "cpu-policy", "observe", "--host-root="+host(t, nil), "--termination-log="+nowhere); err == nil || !strings.Contains(err.Error(), nowhere) || output == "" {
		t.Errorf("it prints %q, %v", output, err)
	}
}

func TestTheArgumentsOfThePodsAreTheCommands(t *testing.T) {
	for _, driver := range operation.Drivers() {
		run, err := agentpod.Run("n1", "agent", operation.Request{ID: "op", Policy: operation.Static, Driver: driver})
		if err != nil {
			t.Fatal(err)
		}
		for name, args := range map[string][]string{"run": run.Containers[0].Args, "observe": agentpod.Observe("n1", "agent", driver).Containers[0].Args} {
			t.Run(fmt.Sprintf("%s %s", driver, name), func(t *testing.T) {
				root, log := host(t, nil), filepath.Join(t.TempDir(), "log")
				for i := range args {
					args[i] = strings.NewReplacer(agentpod.HostRoot, root, run.Containers[0].TerminationMessagePath, log).Replace(args[i])
				}
				// Neither systemd nor the settings of the driver command are there.
				output, err := call(t, newCommand(), args...)
				if !strings.Contains(output, "/run/systemd/private") && !strings.Contains(output, "command is missing") || (err == nil) != (name == "run") {
					t.Errorf("it prints %q, %v", output, err)
				}
				if message, err := os.ReadFile(log); err != nil || len(message) == 0 {
					t.Errorf("the termination message is %q, %v", message, err)
				}
			})
		}
	}
}

func TestAReservationIsWritten(t *testing.T) {
	formula := func(cpus, maxPods int) resource.Quantity {
		if cpus != 8 || maxPods != 200 {
			t.Errorf("the formula is asked for %d CPUs and %d pods", cpus, maxPods)
		}
		return resource.MustParse("490m")
	}
	root := host(t, map[string]string{"/sys/devices/system/cpu/online": "0-7\n", "/etc/rancher/rke2/config.yaml": ""})
	const path = "/etc/rancher/rke2/config.yaml.d/99-z00-harvester-reserved-resources.yaml"
	output, err := call(t, newReserve(formula), "--driver=rke2", "--max-pods=200", "--host-root="+root)
	if err != nil || output != path+": 490m for kubeReserved and for systemReserved\n" {
		t.Errorf("it prints %q, %v", output, err)
	}
	content, err := os.ReadFile(filepath.Join(root, path))
	if want := "kubelet-arg+:\n- \"system-reserved=cpu=490m\"\n- \"kube-reserved=cpu=490m\"\n"; err != nil || string(content) != want {
		t.Errorf("%s is %q (%v), want %q", path, content, err, want)
	}
	if _, err := call(t, newReserve(formula), "--max-pods=-1"); err == nil || !strings.Contains(err.Error(), "--max-pods is -1") {
		t.Errorf("the error is %v", err)
	}
}
