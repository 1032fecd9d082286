/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package partition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

var host = cpuset.New(0, 1, 2, 3)

func TestParseAcceptsPools(t *testing.T) {
	pools, err := Parse([]byte(` {"management": {"cpuset": "0,2-2"}, "other": {"cpuset": ""}} `), host)
	if err != nil {
		t.Fatal(err)
	}
	if got := pools["management"].String(); got != "0,2" {
		t.Errorf("pool is %s, want 0,2", got)
	}
	if got := strings.Join(pools.Types(), " "); got != "management other" {
		t.Errorf("types are %s", got)
	}
	if got := pools.Union().String(); got != "0,2" {
		t.Errorf("union is %s", got)
	}
}

func TestParseRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for name, test := range map[string]struct{ file, wantError string }{
		"null":                          {`null`, "not a pinning file"},
		"an array":                      {`[]`, "not a pinning file"},
		"trailing data":                 {`{"management": {"cpuset": "0"}} x`, "not a pinning file"},
		"a second object":               {`{"management": {"cpuset": "0"}} {}`, "not a pinning file"},
		"a type twice":                  {`{"a": {"cpuset": "0"}, "a": {"cpuset": "1"}}`, `duplicate field "a"`},
		"a key twice":                   {`{"a": {"cpuset": "0", "cpuset": "1"}}`, `duplicate field "a.cpuset"`},
		"an unknown key":                {`{"a": {"cpuset": "0", "cpus": "1"}}`, `workload type "a": unknown field "cpus"`},
		"a key in other case":           {`{"a": {"CPUSet": "0"}}`, `workload type "a": unknown field "CPUSet"`},
		"a type that is null":           {`{"a": null}`, `"a": null is not an object`},
		"a missing cpuset":              {`{"a": {}}`, `"a": cpuset is missing`},
		"a cpuset that is null":         {`{"a": {"cpuset": null}}`, `"a": cpuset is missing`},
		"a cpuset that is a number":     {`{"a": {"cpuset": 0}}`, `"a": cpuset 0 is not a string`},
		"an upper-case type":            {`{"A": {"cpuset": "0"}}`, `workload type "A"`},
		"an empty type":                 {`{"": {"cpuset": "0"}}`, `workload type ""`},
		"a type of quotas":              {`{"requests": {"cpuset": "0"}}`, `workload type "requests"`},
		"a type with a dot":             {`{"a.b": {"cpuset": "0"}}`, `workload type "a.b"`},
		"a type that is too long":       {`{"` + strings.Repeat("a", 64) + `": {"cpuset": "0"}}`, "63"},
		"a word in place of a list":     {`{"a": {"cpuset": "all"}}`, `"all" is not a CPU`},
		"a blank in a list":             {`{"a": {"cpuset": "0, 1"}}`, `" 1" is not a CPU`},
		"a blank list":                  {`{"a": {"cpuset": " "}}`, `" " is not a CPU`},
		"a trailing comma":              {`{"a": {"cpuset": "0,"}}`, `"" is not a CPU`},
		"an open range":                 {`{"a": {"cpuset": "0-"}}`, `"0-" is not a CPU`},
		"a negative CPU":                {`{"a": {"cpuset": "-1"}}`, `"-1" is not a CPU`},
		"a sign":                        {`{"a": {"cpuset": "+1"}}`, `"+1" is not a CPU`},
		"a range that runs backwards":   {`{"a": {"cpuset": "2-1"}}`, `cpuset "2-1"`},
		"a range beyond all CPUs":       {`{"a": {"cpuset": "0-4294967295"}}`, "CPU 4294967295 is beyond 8191"},
		"a number of more than 64 bits": {`{"a": {"cpuset": "99999999999999999999"}}`, "is beyond 8191"},
		"a CPU that the host lacks":     {`{"a": {"cpuset": "3-4"}}`, "the host has no CPU 4; it has 0-3"},
		"pools that overlap":            {`{"b": {"cpuset": "1-2"}, "a": {"cpuset": "0-1"}}`, `"b": cpuset "1-2": CPU 1 is in the pool of "a" too`},
	} {
		t.Run(name, func(t *testing.T) {
			pools, err := Parse([]byte(test.file), host)
			if err == nil {
				t.Fatalf("%s gave %v, want an error", test.file, pools)
			}
			if !strings.Contains(err.Error(), test.wantError) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, test.wantError)
			}
		})
	}
}

func TestParseAcceptsWhatInstallersWrite(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"an empty file switches management on": {"", "management="},
		"so does one of white space":           {" \n\t", "management="},
		"an empty object names no type":        {"{}", ""},
		"line breaks around it":                {"\n{\"management\": {\"cpuset\": \"\"}}\n", "management="},
		"a pool of all CPUs":                   {`{"a": {"cpuset": "0-3"}}`, "a=0-3"},
		"pools that are all CPUs together":     {`{"a": {"cpuset": "0-1"}, "b": {"cpuset": "2-3"}}`, "a=0-1 b=2-3"},
	} {
		pools, err := Parse([]byte(test.file), host)
		var got []string
		for _, workloadType := range pools.Types() {
			got = append(got, workloadType+"="+pools[workloadType].String())
		}
		if err != nil || pools == nil || strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, test.want)
		}
	}
}

func TestPinningFileMustBeRootsAlone(t *testing.T) {
	root = uint32(os.Getuid())
	t.Cleanup(func() { root = 0 })
	directory := t.TempDir()
	path := filepath.Join(directory, "pinning")
	if pools, _, err := Load(path, host); pools != nil || err != nil {
		t.Errorf("no file gave %v, %v; want the feature off", pools, err)
	}
	write := func(mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(`{"management": {"cpuset": "0"}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666} {
		write(mode)
		if _, _, err := Load(path, host); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("mode %#o gave %v, want an error that names the file", mode, err)
		}
	}
	write(0o644)
	if pools, notes, err := Load(path, host); err != nil || pools["management"].String() != "0" || len(notes) != 0 {
		t.Errorf("got %v, %q, %v", pools, notes, err)
	}
	if _, _, err := Load(filepath.Dir(path), host); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory gave %v", err)
	}
	// Two links, the first of them relative, by way of a separate directory.
	links := t.TempDir()
	link := filepath.Join(links, "link")
	for name, target := range map[string]string{link: "./../" + filepath.Base(links) + "/next", filepath.Join(links, "next"): path} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		mode      os.FileMode
		wantError string
	}{
		"that others can write":                  {0o777, "chmod go-w " + directory},
		"that the group can write":               {0o775, "the mode 0775 of directory " + directory},
		"that others can write, with sticky bit": {0o777 | os.ModeSticky, ""},
		"that no one else can write":             {0o755, ""},
		"that no one else can even look into":    {0o700, ""},
	} {
		if err := os.Chmod(directory, test.mode); err != nil {
			t.Fatal(err)
		}
		for _, name2 := range []string{path, link} {
			if _, _, err := Load(name2, host); (err == nil) != (test.wantError == "") || (err != nil && !strings.Contains(err.Error(), test.wantError)) {
				t.Errorf("in a directory %s, %s gave %v, want an error with %q", name, name2, err, test.wantError)
			}
		}
	}
	if err := os.Chmod(links, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(link, host); err == nil || !strings.Contains(err.Error(), "chmod go-w "+links) {
		t.Errorf("a link in a directory that others can write gave %v", err)
	}
	root = uint32(os.Getuid()) + 1
	if _, _, err := Load(path, host); err == nil || !strings.Contains(err.Error(), "chown root "+path) {
		t.Errorf("another user's file gave %v", err)
	}
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	notes, err := CheckDirectories(path)
	if err != nil || !strings.Contains(strings.Join(notes, "\n"), "The directory "+directory+" on the way to "+path) {
		t.Errorf("another user's directory gave %q, %v", notes, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"management": {"cpuset": "0-1,3"}}`))
	f.Add([]byte(`{"a": {"cpuset": ""}, "b": {"cpuset": "2-1"}}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"a": {"cpuset": "0-3"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		pools, err := Parse(data, host)
		if err != nil {
			return
		}
		if pools == nil || !pools.Union().IsSubsetOf(host) {
			t.Errorf("%q gave %v", data, pools)
		}
		total := 0
		for workloadType, cpus := range pools {
			total += cpus.Size()
			if ValidateType(workloadType) != nil {
				t.Errorf("%q gave the type %q", data, workloadType)
			}
		}
		if total != pools.Union().Size() {
			t.Errorf("%q gave pools that overlap: %v", data, pools)
		}
	})
}
