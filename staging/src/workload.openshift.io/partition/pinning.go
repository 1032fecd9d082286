package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
	kjson "sigs.k8s.io/json"
)

// Pools are a node's partitions by workload type (design, section 2). An empty
// set switches a type on without confining it. A nil map means that the feature
// is off.
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

// maxPinningFile bounds the size in bytes of a pinning file; maxCPU is the largest CPU number that
// a kernel can be built for (Linux, arch/x86/Kconfig, NR_CPUS). Both keep a wrong
// file from becoming a wrong amount of memory.
const (
	maxPinningFile = 1 << 20
	maxCPU         = 8191
)

// Load reads the node's pinning file. online is the set of CPUs that the host has.
// Without a file it returns nil and no error: the feature is off. A file that
// anybody but its owner can write, that is not a regular file, or that [Parse]
// does not accept, is an error that names it.
func Load(path string, online cpuset.CPUSet) (Pools, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pinning file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("pinning file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("pinning file %s: is %s, not a regular file", path, info.Mode().Type())
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return nil, fmt.Errorf("pinning file %s: mode %#o lets others than its owner write it; run: chmod go-w %s", path, mode, path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxPinningFile+1))
	if err != nil {
		return nil, fmt.Errorf("pinning file: %w", err)
	}
	if len(data) > maxPinningFile {
		return nil, fmt.Errorf("pinning file %s: is larger than %d bytes", path, maxPinningFile)
	}
	pools, err := Parse(data, online)
	if err != nil {
		return nil, fmt.Errorf("pinning file %s: %w", path, err)
	}
	return pools, nil
}

// Parse decodes a pinning file: a JSON object with one object for each workload
// type, whose only key, cpuset, is a CPU list in the kernel's format. It is
// strict: unknown, missing or duplicate keys, trailing data, an invalid type, a
// malformed list, a CPU that is not in online, two pools that overlap, and pools
// that leave no CPU for anything else are errors that name the type and the value.
func Parse(data []byte, online cpuset.CPUSet) (Pools, error) {
	var file map[string]any
	strict, err := kjson.UnmarshalStrict(data, &file)
	if err != nil {
		return nil, fmt.Errorf("not a pinning file such as {\"management\": {\"cpuset\": \"0-1\"}}: %w", err)
	}
	if len(strict) > 0 {
		// One line, as every error of a pinning file.
		texts := make([]string, len(strict))
		for i := range strict {
			texts[i] = strict[i].Error()
		}
		return nil, errors.New(strings.Join(texts, "; "))
	}
	if len(file) == 0 {
		return nil, errors.New("names no workload type; remove the file to switch the feature off")
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
		cpus, err := parseCPUSet(list)
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
		if !cpus.IsEmpty() && online.IsSubsetOf(pools.Union()) {
			return nil, fmt.Errorf("workload type %q: cpuset %q: leaves none of the host's CPUs %s for anything else", workloadType, abbreviate(list), online)
		}
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

// asJSON prints a value as it stands in the file.
func asJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return abbreviate(string(data))
}

// parseCPUSet is cpuset.Parse for input that nobody has checked: that one would
// enumerate a range of any size, and accepts signs.
func parseCPUSet(list string) (cpuset.CPUSet, error) {
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
