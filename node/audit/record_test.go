// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/component-base/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var update = flag.Bool("update", false, "write the golden files again")

// fromRecord makes a node of the file node.txtar of a record.
func fromRecord(t *testing.T, data []byte) *tree {
	t.Helper()
	n := &tree{t: t, dir: t.TempDir(), runtime: &fakeRuntime{pids: map[string]int{}}}
	for _, file := range txtar.Parse(data).Files {
		if !filepath.IsLocal(file.Name) {
			t.Fatalf("the record has a file %q", file.Name)
		}
		content := strings.TrimSuffix(string(file.Data), "\n")
		if strings.HasSuffix(file.Name, "/ns/mnt") {
			n.link(file.Name, content)
		} else {
			n.write(file.Name, content)
		}
	}
	var listing recordedRuntime
	recorded, err := os.ReadFile(filepath.Join(n.dir, "runtime.json"))
	if err == nil {
		err = json.Unmarshal(recorded, &listing)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.runtime.name = listing.Name
	for _, p := range listing.Pods {
		n.runtime.sandboxes = append(n.runtime.sandboxes, &runtimeapi.PodSandbox{
			Id: p.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: p.Annotations, RuntimeHandler: p.Handler,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.Namespace, Name: p.Name, Uid: p.UID},
		})
		for _, c := range p.Containers {
			n.runtime.containers = append(n.runtime.containers, &runtimeapi.Container{
				Id: c.ID, PodSandboxId: p.ID, State: runtimeapi.ContainerState_CONTAINER_RUNNING, Metadata: &runtimeapi.ContainerMetadata{Name: c.Name},
			})
			n.runtime.pids[c.ID] = c.PID
		}
	}
	return n
}

// An audit of a record finds what the audit of the node has found, in both forms of a record. A
// record has no secrets, and belongs to its owner alone.
func TestARecordHasAllThatAnAuditNeeds(t *testing.T) {
	eachKind(t, func(t *testing.T, v1, systemd bool) {
		n := sample(t, v1, systemd)
		n.write("var/lib/kubelet/config.yaml", "cpuManagerPolicy: static\nreservedSystemCPUs: \"1\"\nstaticPodURL: https://user:hidden@example.com/pods?token=hidden\nstaticPodURLHeader: {Authorization: [hidden]}")
		n.runtime.name = crioRuntime
		n.write("etc/crio/crio.conf.d/10", "[crio.runtime]\ninfra_ctr_cpuset = \"2\"\n[crio.runtime.workloads.x]\nactivation_annotation = \"target.workload.openshift.io/management\"\nresources = { \"cpuset\" = \"1\" }\n[crio.image]\nglobal_auth_file = \"hidden\"")
		n.process(n.pid("operator", "c"), "c\n-- a --\n", "0-1")
		n.runtime.sandboxes[0].Annotations["kubectl.kubernetes.io/last-applied-configuration"] = "hidden"
		directory := filepath.Join(t.TempDir(), "record")
		result, contents, err := Record(t.Context(), n.options(), directory)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"crio", "crio", "reserved-cpus", "task-off-set"}
		var got []string
		for _, f := range result.Findings {
			got = append(got, string(f.Code))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("the findings are %q, want %q", got, want)
		}
		archive := filepath.Join(t.TempDir(), "record.tar.gz")
		if _, _, err := Record(t.Context(), n.options(), archive); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(archive); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the archive has the mode %v (%v), want 0600", info.Mode(), err)
		}
		names := []string{}
		for name, data := range unpack(t, archive) {
			names = append(names, name)
			fromDirectory, err := os.ReadFile(filepath.Join(directory, name))
			if err != nil || len(fromDirectory) == 0 {
				t.Errorf("the directory lacks %s (%v)", name, err)
			}
			if strings.Contains(string(data), "hidden") || strings.Contains(string(data), "secret") {
				t.Errorf("%s has a secret:\n%s", name, data)
			}
			if program := `"program": "` + version.Get().GitVersion + `"`; name == "versions.json" && !strings.Contains(string(data), program) {
				t.Errorf("%s lacks %s:\n%s", name, program, data)
			}
			if name == "node.txtar" {
				again, err := Audit(t.Context(), fromRecord(t, data).options())
				if err != nil {
					t.Fatal(err)
				}
				var gotAgain []string
				for _, f := range again.Findings {
					gotAgain = append(gotAgain, string(f.Code))
				}
				if slices.Sort(gotAgain); !slices.Equal(gotAgain, want) {
					t.Errorf("an audit of the record finds %q, want %q", gotAgain, want)
				}
			}
		}
		if slices.Sort(names); !slices.Equal(names, []string{"README", "audit.json", "node.txtar", "versions.json"}) || len(contents) != 3 {
			t.Errorf("the archive has %q, and says that it has %q", names, contents)
		}
		if _, _, err := Record(t.Context(), n.options(), archive); !errors.Is(err, os.ErrExist) {
			t.Errorf("a second record of that name gives %v, want an error: it must not replace a file", err)
		}
	})
}

func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[filepath.Base(header.Name)], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// The records are those of small made-up nodes, each with one violation: one has cgroup v1 and the
// driver cgroupfs, the other cgroup v2 and systemd.
func TestRecordedNodes(t *testing.T) {
	records, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(records) < 2 {
		t.Fatalf("there are %d recorded nodes (%v), want 2 at least", len(records), err)
	}
	for _, record := range records {
		t.Run(filepath.Base(record), func(t *testing.T) {
			data, err := os.ReadFile(record)
			if err != nil {
				t.Fatal(err)
			}
			result, err := Audit(t.Context(), fromRecord(t, data).options())
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(struct {
				Findings, Notes []Finding
				Containers      []Container
			}{result.Findings, result.Notes, result.Containers}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(record, ".txtar") + ".json"
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || string(want) != string(got)+"\n" {
				t.Errorf("the result is not that of %s (%v); run with -update, and look at the difference:\n%s", golden, err, got)
			}
		})
	}
}
