// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	toml "github.com/pelletier/go-toml/v2"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/partition"
)

// crio is what CRI-O's configuration says about pools (design, section 7).
type crio struct {
	// infra is infra_ctr_cpuset; empty if it is not set.
	infra string
	// workloads are the tables of types, by activation annotation.
	workloads map[string]crioWorkload
	// files says for infra and for each table which file set it last.
	files map[string]string
}

type crioWorkload struct {
	Activation string `toml:"activation_annotation"`
	Resources  struct {
		CPUSet string `toml:"cpuset"`
	} `toml:"resources"`
}

// crioRuntime is CRI-O's name in the CRI.
const crioRuntime = "cri-o"

// The files that CRI-O reads, in this order; a later one replaces a whole table of the same name.
// Drop-ins are in the order of a walk, in directories below, too (CRI-O, pkg/config,
// UpdateFromPath).
const (
	crioFile    = "/etc/crio/crio.conf"
	crioDropIns = "/etc/crio/crio.conf.d"
)

func (h Host) crio() (c crio, err error) {
	files := []string{h.at(crioFile)}
	err = filepath.WalkDir(h.at(crioDropIns), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("CRI-O's configuration: %w", err)
	}
	byName := map[string]crioWorkload{}
	c.files = map[string]string{}
	for _, path := range files {
		data, err := kubeletstate.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return c, fmt.Errorf("CRI-O's configuration: %w", err)
		}
		var file struct {
			CRIO struct {
				Runtime struct {
					Infra     string                  `toml:"infra_ctr_cpuset"`
					Workloads map[string]crioWorkload `toml:"workloads"`
				} `toml:"runtime"`
			} `toml:"crio"`
		}
		if err := toml.Unmarshal(data, &file); err != nil {
			return c, fmt.Errorf("CRI-O's configuration %s: %w", path, err)
		}
		if file.CRIO.Runtime.Infra != "" {
			c.infra, c.files["infra_ctr_cpuset"] = file.CRIO.Runtime.Infra, path
		}
		for name, workload := range file.CRIO.Runtime.Workloads {
			byName[name] = workload
			c.files[workload.Activation] = path
		}
	}
	c.workloads = map[string]crioWorkload{}
	for _, workload := range byName {
		c.workloads[workload.Activation] = workload
	}
	return c, nil
}

// disagreements returns findings where CRI-O has other pools than the pinning file. A pool that
// CRI-O does not know is not a disagreement: the kubelet enforces it alone.
func (c crio) disagreements(pools partition.Pools) (findings []Finding) {
	check := func(what, path, list string, want cpuset.CPUSet) {
		if has, err := partition.ParseCPUs(list); err != nil || !has.Equals(want) {
			findings = append(findings, Finding{Code: CodeCRIO, Object: path,
				Message: fmt.Sprintf("%s is %q, and the pinning file has %q", what, list, want)})
		}
	}
	for _, workloadType := range pools.Types() {
		annotation := partition.TargetAnnotation(workloadType)
		if workload, has := c.workloads[annotation]; has && workload.Resources.CPUSet != "" {
			check(fmt.Sprintf("the cpuset of workload type %s", workloadType), c.files[annotation], workload.Resources.CPUSet, pools[workloadType])
		}
	}
	if c.infra != "" && !pools.Union().IsEmpty() {
		check("infra_ctr_cpuset", c.files["infra_ctr_cpuset"], c.infra, pools.Union())
	}
	return findings
}

// byType returns the tables as CRI-O's configuration has them, without what is not about pools.
func (c crio) byType() map[string]any {
	tables := map[string]any{}
	for annotation, workload := range c.workloads {
		tables[strings.TrimPrefix(annotation, partition.TargetPrefix)] = map[string]any{
			"activation_annotation": annotation, "resources": map[string]any{"cpuset": workload.Resources.CPUSet},
		}
	}
	return tables
}
