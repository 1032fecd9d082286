// SPDX-License-Identifier: Apache-2.0

package agentpod

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// common has all fields of every pod but its arguments and mounts.
const common = `
affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key=metadata.name
affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].operator=In
affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values[0]=n1
automountServiceAccountToken=false
containers[0].image=agent:v1
containers[0].imagePullPolicy=IfNotPresent
containers[0].name=partition-agent
containers[0].securityContext.allowPrivilegeEscalation=false
containers[0].securityContext.capabilities.drop[0]=ALL
containers[0].securityContext.readOnlyRootFilesystem=true
containers[0].securityContext.runAsGroup=0
containers[0].securityContext.runAsUser=0
containers[0].securityContext.seLinuxOptions.type=spc_t
containers[0].securityContext.seccompProfile.type=RuntimeDefault
containers[0].terminationMessagePath=/dev/termination-log
containers[0].terminationMessagePolicy=File
enableServiceLinks=false
restartPolicy=Never
serviceAccountName=partition-agent
tolerations[0].operator=Exists
`

// privileges has what a pod has besides, by what it runs and the driver.
var privileges = map[string]string{
	"observe": `
containers[0].volumeMounts[0].mountPath=/host
containers[0].volumeMounts[0].name=host
containers[0].volumeMounts[0].readOnly=true
containers[0].volumeMounts[0].recursiveReadOnly=IfPossible
volumes[0].hostPath.path=/
volumes[0].hostPath.type=Directory
volumes[0].name=host
`,
	"run with systemd": `
containers[0].volumeMounts[0].mountPath=/host/var/lib/partition-agent
containers[0].volumeMounts[0].name=agent
containers[0].volumeMounts[1].mountPath=/host/etc/systemd/system
containers[0].volumeMounts[1].name=units
containers[0].volumeMounts[2].mountPath=/host/run/systemd
containers[0].volumeMounts[2].name=systemd
containers[0].volumeMounts[2].readOnly=true
containers[0].volumeMounts[2].recursiveReadOnly=IfPossible
containers[0].volumeMounts[3].mountPath=/host/etc/partition-agent
containers[0].volumeMounts[3].name=settings
containers[0].volumeMounts[3].readOnly=true
containers[0].volumeMounts[3].recursiveReadOnly=IfPossible
volumes[0].hostPath.path=/var/lib/partition-agent
volumes[0].hostPath.type=DirectoryOrCreate
volumes[0].name=agent
volumes[1].hostPath.path=/etc/systemd/system
volumes[1].hostPath.type=Directory
volumes[1].name=units
volumes[2].hostPath.path=/run/systemd
volumes[2].hostPath.type=Directory
volumes[2].name=systemd
volumes[3].hostPath.path=/etc/partition-agent
volumes[3].hostPath.type=DirectoryOrCreate
volumes[3].name=settings
`,
	"run with commands": `
containers[0].securityContext.appArmorProfile.type=Unconfined
containers[0].securityContext.capabilities.add[0]=SYS_CHROOT
containers[0].volumeMounts[0].mountPath=/host
containers[0].volumeMounts[0].name=host
hostNetwork=true
hostPID=true
volumes[0].hostPath.path=/
volumes[0].hostPath.type=Directory
volumes[0].name=host
`,
}

// fields returns all fields of a value that are set, as lines.
func fields(t *testing.T, spec corev1.PodSpec) []string {
	t.Helper()
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return flatten("", value)
}

func flatten(path string, value any) (lines []string) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			lines = append(lines, flatten(strings.TrimPrefix(path+"."+key, "."), value[key])...)
		}
	case []any:
		for i, element := range value {
			lines = append(lines, flatten(fmt.Sprintf("%s[%d]", path, i), element)...)
		}
	default:
		lines = append(lines, fmt.Sprintf("%s=%v", path, value))
	}
	return lines
}

func TestPodsHaveTheListedPrivilegesAndNoOthers(t *testing.T) {
	for _, driver := range operation.Drivers() {
		request := operation.Request{ID: "op-1", Policy: operation.Static, Driver: driver}
		run, err := Run("n1", "agent:v1", request)
		if err != nil {
			t.Fatal(err)
		}
		with := "run with systemd"
		if driver == operation.DriverCommand {
			with = "run with commands"
		}
		encoded := fmt.Sprintf(`{"id":"op-1","policy":"static","driver":%q}`, driver)
		for name, test := range map[string]struct {
			spec        corev1.PodSpec
			privileges  string
			verb, about string
		}{
			"run":     {run, with, "run", "--request=" + encoded},
			"settle":  {Settle("n1", "agent:v1", driver, "op-1"), with, "settle", "--operation=op-1"},
			"observe": {Observe("n1", "agent:v1", driver), "observe", "observe", "--driver=" + string(driver)},
		} {
			t.Run(fmt.Sprintf("%s, %s", driver, name), func(t *testing.T) {
				want := slices.Concat(strings.Fields(common), strings.Fields(privileges[test.privileges]))
				for i, arg := range []string{"cpu-policy", test.verb, "--host-root=/host", "--termination-log=/dev/termination-log", test.about} {
					want = append(want, fmt.Sprintf("containers[0].args[%d]=%s", i, arg))
				}
				slices.Sort(want)
				got := fields(t, test.spec)
				slices.Sort(got)
				for _, line := range got {
					if !slices.Contains(want, line) {
						t.Errorf("the pod has %s", line)
					}
				}
				for _, line := range want {
					if !slices.Contains(got, line) {
						t.Errorf("the pod lacks %s", line)
					}
				}
			})
		}
	}
}

func TestAPodOfAnInvalidRequestIsRefused(t *testing.T) {
	_, err := Run("n1", "agent:v1", operation.Request{ID: "a", Policy: operation.None, Driver: "sh"})
	if err == nil || !strings.Contains(err.Error(), `operation "a": driver: Unsupported value: "sh"`) {
		t.Errorf("the error is %v", err)
	}
}
