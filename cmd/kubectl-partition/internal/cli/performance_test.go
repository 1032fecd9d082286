// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	v2 "workload.openshift.io/operators/api/performance/v2"
	"workload.openshift.io/operators/performance"
)

// A node that is configured by hand and one of a NodePool with a PerformanceProfile have the same files.
func TestAPerformanceProfileMakesTheFilesOfRender(t *testing.T) {
	for name, test := range map[string]struct {
		spec  v2.Spec
		flags []string
	}{
		"reserved and isolated": {
			v2.Spec{CPU: v2.CPU{Reserved: "0-1,28-29", Isolated: "2-27,30-55"}},
			[]string{"--cpuset=0-1,28-29", "--cpus-of-host=0-55"},
		},
		"the host's packet processing and a topology policy": {
			v2.Spec{CPU: v2.CPU{Reserved: "0-1", Isolated: "4-7", OVSDPDK: "2-3"}, NUMA: &v2.NUMA{TopologyPolicy: "single-numa-node"}},
			[]string{"--cpuset=0-1", "--cpus-of-host=0-7", "--system-cpus=2-3", "--topology-manager-policy=single-numa-node"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			profile := v2.PerformanceProfile{Spec: test.spec}
			profile.Metadata.Name = "edge"
			rendered, errs := performance.Render(profile)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			directory := t.TempDir()
			var out, problems bytes.Buffer
			command := newRender(genericiooptions.IOStreams{Out: &out, ErrOut: &problems})
			command.SetArgs(append([]string{"--role=worker", "--cpu-manager-policy=static", "--host=kernel-arguments", "--to=" + directory}, test.flags...))
			if err := command.Execute(); err != nil {
				t.Fatal(err, problems.String())
			}
			for _, file := range append(rendered.Files, rendered.KubeletDropIn) {
				got, err := os.ReadFile(filepath.Join(directory, file.Path))
				if err != nil || !bytes.Equal(got, file.Content) {
					t.Errorf("%s: %v; render writes\n%s\nand a PerformanceProfile makes\n%s", file.Path, err, got, file.Content)
				}
			}
			grub, err := os.ReadFile(filepath.Join(directory, "etc/default/grub.d/99-workload-partitioning.cfg"))
			if err != nil {
				t.Fatal(err)
			}
			_, arguments, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(string(grub)), `"`), "$GRUB_CMDLINE_LINUX ")
			if got := strings.Join(rendered.Arguments, " "); !strings.HasPrefix(got, arguments+" ") || arguments == "" {
				t.Errorf("render has the arguments %q, and a PerformanceProfile %q", arguments, got)
			}
		})
	}
}
