// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// programName is what the name of a further program looks like: it is part of the names of files.
var programName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// further describes another program that runs with the cluster.
func (c *Cluster) further(name string) *process {
	return &process{program: program{name: name, data: c.Config.Paths.Data}, run: filepath.Join(c.Config.Paths.Run, "programs")}
}

// programs returns the programs that Run has started and that were not stopped since.
func (c *Cluster) programs() []Component {
	files, _ := filepath.Glob(filepath.Join(c.further("").run, "*.json")) // the pattern is well-formed
	var programs []Component
	for _, file := range files {
		programs = append(programs, c.further(strings.TrimSuffix(filepath.Base(file), ".json")))
	}
	return programs
}

// Run starts a program that runs with the cluster, such as a controller. It replaces the one of that name. The program outlives
// this process; Down ends it before the cluster's own. Its log is next to theirs, and Component and Restart know it.
func (c *Cluster) Run(name string, env []string, args ...string) (Component, error) {
	switch {
	case c.Config.Supervisor == Systemd:
		return nil, fmt.Errorf("program %s: a cluster under systemd runs no further programs; give it a unit", name)
	case !programName.MatchString(name):
		return nil, fmt.Errorf("program %q: the name must have only lower-case letters, digits and dashes", name)
	case slices.ContainsFunc(c.components(), func(component Component) bool { return component.Name() == name }):
		return nil, fmt.Errorf("program %s: the cluster has a component of that name", name)
	case len(args) == 0:
		return nil, fmt.Errorf("program %s: no command is given", name)
	}
	if !c.Exists() {
		return nil, errors.New("no cluster is up")
	}
	p := c.further(name)
	if err := p.Stop(10 * time.Second); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.run, 0o755); err != nil {
		return nil, err
	}
	p.args, p.env = args, env
	return p, p.Start()
}
