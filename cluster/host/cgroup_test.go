// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestTaskCPUs(t *testing.T) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	own, pid := strings.TrimSpace(line), strconv.Itoa(os.Getpid())
	for name, test := range map[string]struct {
		tasks string
		want  []string
	}{
		"none":                       {"", nil},
		"this process":               {pid + "\n", []string{own}},
		"each list once":             {pid + "\n" + pid + "\n", []string{own}},
		"one that has ended":         {"4194305\n", nil}, // more than the kernel's highest number
		"one of a sibling namespace": {"0\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := taskCPUs(test.tasks); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("the CPUs are %q (%v), want %q", got, err, test.want)
			}
		})
	}
}
