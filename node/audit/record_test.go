// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/version"
)

var update = flag.Bool("update", false, "write the golden files again")

// fromRecord returns the options for an audit of the file node.txtar of a record.
func fromRecord(t *testing.T, data []byte) Options {
	t.Helper()
	record := filepath.Join(t.TempDir(), "node.txtar")
	if err := os.WriteFile(record, data, 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := Recorded(record, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// again returns what an audit of the record of a node finds.
func again(t *testing.T, n *tree) *Result {
	t.Helper()
	var text bytes.Buffer
	if err := RecordText(t.Context(), n.options(), &text); err != nil {
		t.Fatal(err)
	}
	files, err := ParseText(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	result, err := Audit(t.Context(), fromRecord(t, files[nodeFile]))
	if err != nil {
		t.Fatal(err)
	}
	return result
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
		for name, data := range unpacked(t, archive) {
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
				again, err := Audit(t.Context(), fromRecord(t, data))
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

// What only the second look has found is a race, and no finding. The record has no process of it.
func TestARecordHasNoRaces(t *testing.T) {
	eachKind(t, func(t *testing.T, v1, systemd bool) {
		n := sample(t, v1, systemd)
		pid := n.pid("operator", "c")
		n.process(pid, "c", "0-1")
		looks := 0
		n.runtime.before = func() {
			if looks++; looks == 2 {
				n.process(pid, "c", "0")
				n.process(2000, "child", "0-3")
				n.link("proc/2000/ns/mnt", fmt.Sprintf("mnt:[%d]", 4026532000+pid))
			}
		}
		if again := again(t, n); !again.Clean() || looks != 2 {
			t.Errorf("after %d looks an audit of the record finds %v, want nothing after 2", looks, codes(again.Findings))
		}
	})
}

// What a node writes into its log is not believed: a text that is no record of a node is an error.
func TestATextThatIsNoRecordIsRefused(t *testing.T) {
	var text bytes.Buffer
	if err := RecordText(t.Context(), sample(t, true, false).options(), &text); err != nil {
		t.Fatal(err)
	}
	said := "W1129 a line of a log\n" + text.String() + "another\n"
	files, err := ParseText([]byte(said))
	if err != nil || len(files) != 4 {
		t.Fatalf("of a record between lines of a log, %d files are read: %v", len(files), err)
	}
	if again, err := Audit(t.Context(), fromRecord(t, files["node.txtar"])); err != nil || !again.Clean() {
		t.Errorf("an audit of the record finds %+v (%v), want nothing", again, err)
	}
	packed := func(files map[string][]byte) string {
		var archive bytes.Buffer
		if err := pack(&archive, "record", time.Now(), files); err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: textType, Bytes: archive.Bytes()}))
	}
	for name, text := range map[string]string{
		"nothing":                "",
		"a record that was cut":  said[:len(said)/2],
		"another block":          string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("a")})),
		"bytes that are no gzip": string(pem.EncodeToMemory(&pem.Block{Type: textType, Bytes: []byte("a")})),
		"a file too many":        packed(map[string][]byte{"../../etc/passwd": []byte("a")}),
		"a file too few":         packed(map[string][]byte{"audit.json": []byte("{}")}),
		"more than it may have":  packed(map[string][]byte{"README": []byte("a"), "audit.json": make([]byte, MaxRecord), "node.txtar": []byte("a"), "versions.json": []byte("a")}),
	} {
		if files, err := ParseText([]byte(text)); err == nil {
			t.Errorf("%s gives the files %v", name, slices.Collect(maps.Keys(files)))
		}
	}
}

// A record comes from a stranger: its files stay below the directory.
func TestARecordWritesNothingElsewhere(t *testing.T) {
	above := t.TempDir()
	for name, text := range map[string]string{
		"a path upwards":             "-- ../outside --\na\n",
		"an absolute path":           "-- /outside --\na\n",
		"a link out of it":           "-- proc/1/ns/mnt --\n../../../../..\n",
		"a file below a link":        "-- proc/1/ns/mnt --\nmnt:[1]\n-- proc/1/ns/mnt/outside --\na\n",
		"no listing of the runtime":  "-- sys/fs/cgroup/cgroup.controllers --\ncpuset\n",
		"a listing that is not JSON": "-- runtime.json --\na\n",
	} {
		record, dir := filepath.Join(t.TempDir(), "node.txtar"), filepath.Join(above, "inside")
		if err := errors.Join(os.WriteFile(record, []byte(text), 0o600), os.MkdirAll(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		if _, err := Recorded(record, dir); err == nil {
			t.Errorf("%s is not refused", name)
		}
		if entries, err := os.ReadDir(above); err != nil || len(entries) != 1 {
			t.Errorf("%s: beside the directory there is %v (%v)", name, entries, err)
		}
	}
}

func unpacked(t *testing.T, path string) map[string][]byte {
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
			result, err := Audit(t.Context(), fromRecord(t, data))
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
