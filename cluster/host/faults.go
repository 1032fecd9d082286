// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// raceWarning begins, and raceEnd ends, what Go's race detector prints of a data race.
	raceWarning = "WARNING: DATA RACE"
	raceEnd     = "=================="
	// ours is part of the names of this project's packages.
	ours = "workload.openshift.io"
	// faultLines is how much of a fault is of use to a reader. What goes on is more stacks.
	faultLines = 40
)

// crashes are what a Go program prints before its stacks when it crashes.
var crashes = []string{"panic: ", "fatal error: "}

// isCrash reports whether a line begins what a crash prints.
func isCrash(line []byte) bool {
	return slices.ContainsFunc(crashes, func(prefix string) bool { return bytes.HasPrefix(line, []byte(prefix)) })
}

// Faults returns what components have printed since the last call as they crashed. Of components
// that report data races, it also returns those in which this project's code has a part. Each
// fault begins with the path of the log.
func (c *Cluster) Faults() ([]string, error) {
	logs, err := filepath.Glob(c.data("logs/*.log"))
	if err != nil {
		return nil, err
	}
	if c.read == nil {
		c.read = map[string]int64{}
	}
	var faults []string
	for _, log := range logs {
		if log == c.AuditLog() {
			continue
		}
		data, end, err := readFrom(log, c.read[log])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c.read[log] = end
		for _, fault := range faultsIn(data) {
			faults = append(faults, fmt.Sprintf("%s has:\n%s", log, fault))
		}
	}
	return faults, nil
}

// readFrom returns what a file has behind an offset, and where it ends. A file that is shorter is a
// new one.
func readFrom(path string, offset int64) (data []byte, end int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, err
	}
	if size < offset {
		offset = 0
	}
	data, err = io.ReadAll(io.NewSectionReader(file, offset, size-offset))
	return data, offset + int64(len(data)), err
}

// faultsIn returns the faults that a program has printed; see Cluster.Faults.
func faultsIn(printed []byte) (faults []string) {
	lines := slices.Collect(bytes.Lines(printed))
	for i := 0; i < len(lines); i++ {
		race := bytes.HasPrefix(lines[i], []byte(raceWarning))
		if !race && !isCrash(lines[i]) {
			continue
		}
		rest := lines[i:]
		if race {
			if end := slices.IndexFunc(rest, func(line []byte) bool { return bytes.HasPrefix(line, []byte(raceEnd)) }); end >= 0 {
				rest = rest[:end]
			}
			if !slices.ContainsFunc(rest, func(line []byte) bool { return bytes.Contains(line, []byte(ours)) }) {
				continue
			}
		}
		rest = rest[:min(len(rest), faultLines)]
		faults = append(faults, strings.TrimSpace(string(bytes.Join(rest, nil))))
		i += len(rest) - 1
	}
	return faults
}
