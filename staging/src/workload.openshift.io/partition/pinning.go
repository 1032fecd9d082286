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
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
	kjson "sigs.k8s.io/json"
)

// Pools are a node's pools by workload type (design, section 2). An empty pool switches its
// type on without confining it. A nil map means that the feature is off; an empty one, that
// the file names no type.
type Pools map[string]cpuset.CPUSet

// Types returns the workload types in alphabetical order.
func (p Pools) Types() []string {
	return slices.Sorted(maps.Keys(p))
}

// Union returns the CPUs of all pools.
func (p Pools) Union() cpuset.CPUSet {
	union := cpuset.New()
	for _, cpus := range p {
		union = union.Union(cpus)
	}
	return union
}

// maxPinningFile is the largest size of a pinning file, in bytes. maxCPU is the largest CPU
// number that a kernel can be built for (Linux, arch/x86/Kconfig, NR_CPUS). Both keep a
// wrong file from taking a wrong amount of memory.
const (
	maxPinningFile = 1 << 20
	maxCPU         = 8191
)

// Load reads the node's pinning file. online are the CPUs that the host has. Without a file
// Load returns nil and no error: the feature is off.
//
// Load returns an error that names the file if it is not a regular file, if [Parse] does not
// accept it, or if a user other than root owns it, can write it, or could put another in its place.
// Notes are sentences for the administrator about a file that is accepted all the same.
func Load(path string, online cpuset.CPUSet) (pools Pools, notes []string, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("pinning file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("pinning file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("pinning file %s: is %s, not a regular file", path, info.Mode().Type())
	}
	if mode := info.Mode().Perm(); mode&writableByOthers != 0 {
		return nil, nil, fmt.Errorf("pinning file %s: mode %#o lets users other than its owner write it; run: chmod go-w %[1]s", path, mode)
	}
	if owner, known := ownerOf(info); known && owner != root {
		return nil, nil, fmt.Errorf("pinning file %s: belongs to user %d, who is not root; run: chown root %[1]s", path, owner)
	}
	if notes, err = CheckDirectories(path); err != nil {
		return nil, nil, fmt.Errorf("pinning file %s: %w", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxPinningFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("pinning file: %w", err)
	}
	if len(data) > maxPinningFile {
		return nil, nil, fmt.Errorf("pinning file %s: is larger than %d bytes", path, maxPinningFile)
	}
	pools, err = Parse(data, online)
	if err != nil {
		return nil, nil, fmt.Errorf("pinning file %s: %w", path, err)
	}
	return pools, notes, nil
}

const writableByOthers = 0o022

// root is the user who must own the pinning file; tests may run as another.
var root uint32

// CheckDirectories looks at every directory through which the kernel finds the file, symbolic
// links included: a user who can write one of them can put another file there, unless it has the
// sticky bit. An owner other than root is only noted: common installers give /etc/kubernetes
// to a user of their own, who owns the static pods' manifests as well.
//
// If the file or a directory is missing, the error is [os.ErrNotExist], once all above it are found
// to be good.
func CheckDirectories(path string) (notes []string, err error) {
	seen := map[string]bool{}
	check := func(directory string) error {
		if seen[directory] {
			return nil
		}
		seen[directory] = true
		info, err := os.Stat(directory)
		if err != nil {
			return err
		}
		if mode := info.Mode(); mode.Perm()&writableByOthers != 0 && mode&os.ModeSticky == 0 {
			return fmt.Errorf("the mode %#o of directory %s lets users other than its owner replace the files in it; run: chmod go-w %[2]s", mode.Perm(), directory)
		}
		if owner, known := ownerOf(info); known && owner != root {
			notes = append(notes, fmt.Sprintf("The directory %s on the way to %s belongs to user %d, who is not root and can replace the file", directory, path, owner))
		}
		return nil
	}
	const separator = string(filepath.Separator)
	directory, ahead := separator, strings.Split(path, separator)
	for links := 0; len(ahead) > 0; {
		name := ahead[0]
		ahead = ahead[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			directory = filepath.Dir(directory)
			continue
		}
		if err := check(directory); err != nil {
			return nil, err
		}
		at := filepath.Join(directory, name)
		info, err := os.Lstat(at)
		if err != nil {
			return nil, err
		}
		if info.Mode().Type() != os.ModeSymlink {
			directory = at
			continue
		}
		if links++; links > maxLinks {
			return nil, fmt.Errorf("has more than %d symbolic links", maxLinks)
		}
		target, err := os.Readlink(at)
		if err != nil {
			return nil, err
		}
		if filepath.IsAbs(target) {
			directory = separator
		}
		ahead = append(strings.Split(target, separator), ahead...)
	}
	return notes, nil
}

// maxLinks is how many symbolic links the kernel follows (Linux, include/linux/namei.h,
// MAXSYMLINKS).
const maxLinks = 40

// emptyFileType is the workload type that an empty file switches on: some installers only
// create the file.
const emptyFileType = "management"

// Parse decodes a pinning file: a JSON object with one object for each workload type, whose
// only key, cpuset, is a CPU list in the kernel's format. An empty file, or one of white
// space, switches management on without confining it.
//
// Apart from that, Parse is strict. Unknown, missing or duplicate keys, trailing data, an
// invalid type, a malformed list, a CPU that is not in online, and pools that overlap are
// errors that name the type and the value. The pools may be all of online.
func Parse(data []byte, online cpuset.CPUSet) (Pools, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return Pools{emptyFileType: cpuset.New()}, nil
	}
	var file map[string]any
	strict, err := kjson.UnmarshalStrict(data, &file)
	if err == nil && file == nil {
		err = errors.New("null is not an object")
	}
	if err != nil {
		return nil, fmt.Errorf("not a pinning file such as {\"management\": {\"cpuset\": \"0-1\"}}: %w", err)
	}
	if len(strict) > 0 {
		// In one line, like every error about a pinning file.
		texts := make([]string, len(strict))
		for i := range strict {
			texts[i] = strict[i].Error()
		}
		return nil, errors.New(strings.Join(texts, "; "))
	}
	pools := make(Pools, len(file))
	owner := map[int]string{}
	for _, workloadType := range slices.Sorted(maps.Keys(file)) {
		if err := ValidateType(workloadType); err != nil {
			return nil, err
		}
		list, err := cpusetOf(file[workloadType])
		if err != nil {
			return nil, fmt.Errorf("workload type %q: %w", workloadType, err)
		}
		cpus, err := ParseCPUs(list)
		if err != nil {
			return nil, fmt.Errorf("workload type %q: cpuset %q: %w", workloadType, abbreviate(list), err)
		}
		if absent := cpus.Difference(online); !absent.IsEmpty() {
			return nil, fmt.Errorf("workload type %q: cpuset %q: the host has no CPU %s; it has %s", workloadType, abbreviate(list), absent, online)
		}
		for _, cpu := range cpus.List() {
			if other, taken := owner[cpu]; taken {
				return nil, fmt.Errorf("workload type %q: cpuset %q: CPU %d is in the pool of %q too", workloadType, abbreviate(list), cpu, other)
			}
			owner[cpu] = workloadType
		}
		pools[workloadType] = cpus
	}
	return pools, nil
}

// cpusetOf returns the CPU list of one workload type's object.
func cpusetOf(value any) (string, error) {
	entry, ok := value.(map[string]any)
	if !ok {
		return "", fmt.Errorf("%s is not an object such as {\"cpuset\": \"0-1\"}", asJSON(value))
	}
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		if key != "cpuset" {
			return "", fmt.Errorf("unknown field %q; there is only cpuset", abbreviate(key))
		}
	}
	switch list := entry["cpuset"].(type) {
	case string:
		return list, nil
	case nil:
		return "", errors.New("cpuset is missing; \"\" switches the type on without confining it")
	default:
		return "", fmt.Errorf("cpuset %s is not a string such as \"0-1\"", asJSON(list))
	}
}

// asJSON prints a value as the file has it.
func asJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return abbreviate(string(data))
}

// ParseCPUs reads a CPU list as [Parse] does. It is cpuset.Parse for input that no one has
// checked: cpuset.Parse would enumerate a range of any size, and accepts signs. An empty list
// has no CPU. Errors quote the part of the list that is wrong.
//
// It reads no file, such as the kernel's list of online CPUs: the core does not know hosts, and
// its callers do.
func ParseCPUs(list string) (cpuset.CPUSet, error) {
	if list == "" {
		return cpuset.New(), nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		numbers := []string{first, last}
		if !isRange {
			numbers = numbers[:1]
		}
		for _, number := range numbers {
			if number == "" || strings.Trim(number, "0123456789") != "" {
				return cpuset.CPUSet{}, fmt.Errorf("%q is not a CPU or a range of CPUs; write a list such as 0-1,52-53", abbreviate(part))
			}
			if cpu, err := strconv.Atoi(number); err != nil || cpu > maxCPU {
				return cpuset.CPUSet{}, fmt.Errorf("CPU %s is beyond %d, the largest that Linux knows", abbreviate(number), maxCPU)
			}
		}
	}
	return cpuset.Parse(list)
}
