// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/images/internal/gobinary"
)

func TestAProgramSaysWhatItIs(t *testing.T) {
	for platform, dirs := range gobinary.Dirs(t, "kubelet") {
		p, err := Find("kubelet", platform, append([]string{t.TempDir()}, dirs...))
		if err != nil {
			t.Fatal(err)
		}
		if p.Platform() != platform || len(p.Revision) != 40 || p.Date.Format("2006-01-02") != "2026-08-26" || p.Interpreter != "" {
			t.Errorf("%s says it is for %s, of commit %q at %s, with loader %q", p.File, p.Platform(), p.Revision, p.Date, p.Interpreter)
		}
	}
}

func TestAWrongProgramIsRefusedByName(t *testing.T) {
	for _, test := range []struct {
		name, want string
		change     func(dir string)
	}{
		{"none", "no kubelet for linux/amd64 in ", func(string) {}},
		{"one that is not ELF", "/kubelet is not a Go binary: ", func(dir string) {
			gobinary.Write(t, filepath.Join(dir, "kubelet"), []byte("#!/bin/sh\n"))
		}},
		{"one of another architecture", "/kubelet is for linux/arm64, want linux/amd64", func(dir string) {
			gobinary.Write(t, filepath.Join(dir, "kubelet"), gobinary.Program(t, "linux/arm64"))
		}},
		{"one of changes that are not committed", "with uncommitted changes: commit them", func(dir string) {
			gobinary.Write(t, filepath.Join(dir, "kubelet"), gobinary.Program(t, "dirty"))
		}},
		{"one with paths of the host that built it", "/kubelet was built with -trimpath=\"\", want \"true\": ", func(dir string) {
			gobinary.Write(t, filepath.Join(dir, "kubelet"), gobinary.Program(t, "untrimmed"))
		}},
		{"one that is not optimized", "/kubelet was built with -gcflags=\"-N -l\", want \"\": ", func(dir string) {
			gobinary.Write(t, filepath.Join(dir, "kubelet"), gobinary.Program(t, "debug"))
		}},
		{"one that its checksum does not match", "/SHA256SUMS says 1234: build it again", func(dir string) {
			gobinary.Write(t, filepath.Join(dir, "kubelet"), gobinary.Program(t, "linux/amd64"))
			gobinary.Write(t, filepath.Join(dir, "SHA256SUMS"), []byte("# v1.37.0+wp.1234567, built\n1234  kubelet\n"))
		}},
		{"one without a checksum", "so its version is unknown", func(dir string) {
			gobinary.Write(t, filepath.Join(dir, "kubelet"), gobinary.Program(t, "linux/amd64"))
			gobinary.Write(t, filepath.Join(dir, "SHA256SUMS"), []byte("# v1.37.0+wp.1234567, built\n1234  kubectl\n"))
		}},
		{"one that is cut off", "/kubelet", func(dir string) {
			gobinary.Write(t, filepath.Join(dir, "kubelet"), bytes.Clone(gobinary.Program(t, "linux/amd64")[:4096]))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.change(dir)
			_, err := Find("kubelet", "linux/amd64", []string{dir})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
			if got := errors.Is(err, fs.ErrNotExist); got != (test.name == "none") {
				t.Errorf("the error says that there is none: %t", got)
			}
		})
	}
}

func TestChecksumsMustAgreeOnTheVersion(t *testing.T) {
	for _, test := range []struct {
		name, first, second, version, want string
	}{
		{"both agree", "# v1.37.0+wp.1234567, built with go1.26.6 linux/amd64\n", "# v1.37.0+wp.1234567, built with go1.26.7 linux/amd64\n", "v1.37.0+wp.1234567", ""},
		{"they differ", "# v1.37.0+wp.1234567, built\n", "# v1.37.0+wp.7654321, built\n", "", "has version v1.37.0+wp.7654321"},
		{"it has changes", "# v1.37.0+wp.1234567-dirty, built\n", "", "", "has version v1.37.0+wp.1234567-dirty, which was built with uncommitted changes"},
		{"it is not carry's", "1234  kubelet\n", "", "", `the first line "1234  kubelet" names no version`},
		{"there is none", "", "", "", "so the version is unknown"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dirs := []string{t.TempDir(), t.TempDir()}
			for i, content := range []string{test.first, test.second} {
				if content != "" {
					gobinary.Write(t, filepath.Join(dirs[i], "SHA256SUMS"), []byte(content))
				}
			}
			version, err := Version(dirs)
			if version != test.version || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got version %q and error %v, want %q and one with %q", version, err, test.version, test.want)
			}
		})
	}
}
