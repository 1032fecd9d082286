// SPDX-License-Identifier: Apache-2.0

// Package render packs the files of partitioned nodes for an installer.
//
// [Read] reads what a person wrote from a file, [Propose] chooses CPUs from a host's topology, and
// [Render] takes what package nodefiles has validated. All of this is a pure function of the value:
// nothing is read from the host, and nothing is written.
package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/node/nodefiles"
)

// Kind is that of a [nodefiles.NodeConfiguration]. Its version is that of the package output.
const Kind = "NodeConfiguration"

// maxBytes bounds the size in bytes of an input.
const maxBytes = 1 << 20

// Read reads configurations from YAML or JSON: documents of the kind [nodefiles.NodeConfiguration], or
// the configuration of OpenShift's installer, of which it takes workload.partitions of each
// machine pool (the source document, "Have the installer configure the feature"). Everything
// but the rest of that configuration is decoded strictly. Errors name the field and the value.
func Read(r io.Reader) ([]nodefiles.NodeConfiguration, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("the configuration is larger than %d bytes", maxBytes)
	}
	var all []nodefiles.NodeConfiguration
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		configurations, err := readDocument(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		all = append(all, configurations...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no %s, and no machine pool with workload.partitions", Kind)
	}
	return all, nil
}

func readDocument(document []byte) ([]nodefiles.NodeConfiguration, error) {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	if bytes.Equal(data, []byte("null")) {
		return nil, nil
	}
	var installer installConfig
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &installer); err != nil {
		return nil, err
	}
	if installer.Kind == "" && (installer.ControlPlane != nil || installer.Compute != nil) {
		return installer.configurations()
	}
	if installer.APIVersion != output.APIVersion || installer.Kind != Kind {
		return nil, fmt.Errorf("apiVersion %q and kind %q: want %s and %s, or the installer's controlPlane and compute", installer.APIVersion, installer.Kind, output.APIVersion, Kind)
	}
	var configuration nodefiles.NodeConfiguration
	if err := decodeStrict(data, &configuration); err != nil {
		return nil, err
	}
	return []nodefiles.NodeConfiguration{configuration}, nil
}

// installConfig is the part of install-config.yaml that matters here.
type installConfig struct {
	APIVersion   string        `json:"apiVersion"`
	Kind         string        `json:"kind"`
	ControlPlane *machinePool  `json:"controlPlane"`
	Compute      []machinePool `json:"compute"`
}

type machinePool struct {
	Name string `json:"name"`
	// Workload is decoded strictly, unlike its surroundings.
	Workload json.RawMessage `json:"workload"`
}

type workload struct {
	Partitions []struct {
		Name   string  `json:"name"`
		CPUIDs *string `json:"cpuIDs"`
	} `json:"partitions"`
}

// configurations has one configuration for each machine pool with partitions. A pool without
// any leaves the feature off.
func (c installConfig) configurations() (all []nodefiles.NodeConfiguration, err error) {
	pools, paths := c.Compute, []string{}
	for i := range pools {
		paths = append(paths, fmt.Sprintf("compute[%d]", i))
	}
	if c.ControlPlane != nil {
		pools, paths = append([]machinePool{*c.ControlPlane}, pools...), append([]string{"controlPlane"}, paths...)
	}
	for i, pool := range pools {
		if len(pool.Workload) == 0 {
			continue
		}
		var w workload
		if err := decodeStrict(pool.Workload, &w); err != nil {
			return nil, fmt.Errorf("%s.workload: %w", paths[i], err)
		}
		if len(w.Partitions) == 0 {
			continue
		}
		configuration := nodefiles.NodeConfiguration{TypeMeta: output.TypeMeta(Kind), Roles: []string{pool.Name}}
		for j, p := range w.Partitions {
			if p.CPUIDs == nil {
				return nil, fmt.Errorf("%s.workload.partitions[%d].cpuIDs: the pool of %q is missing", paths[i], j, p.Name)
			}
			configuration.Partitions = append(configuration.Partitions, nodefiles.Partition{Type: p.Name, CPUSet: p.CPUIDs})
		}
		all = append(all, configuration)
	}
	return all, nil
}

// decodeStrict decodes JSON that has no field twice.
func decodeStrict(data []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(data, into)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if strings.Contains(text, "cannot unmarshal number") {
		text += `; YAML takes a single CPU for a number, so write it in quotes: "0"`
	}
	return errors.New(text)
}
