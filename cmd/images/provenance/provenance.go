// SPDX-License-Identifier: Apache-2.0

// Package provenance writes, and reads, from what an image was made, as a statement of in-toto with SLSA's
// predicate. It must not know how an image is made.
package provenance

import (
	"encoding/json"
	"fmt"
	"io"
)

// Types of the statement, see https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	// buildType names what the parameters mean: docs/user/images.md says it.
	buildType = "https://workload.openshift.io/images/v1"
	builder   = "https://workload.openshift.io/cmd/images"
)

// Artifact is something that a hash identifies.
type Artifact struct {
	Name string `json:"name,omitempty"`
	URI  string `json:"uri,omitempty"`
	// Digest has a hash in hexadecimal for each algorithm, such as sha256 or gitCommit.
	Digest map[string]string `json:"digest"`
}

// Statement says what was made from what.
type Statement struct {
	// Builder is the commit of the program that made it; empty means that it is not known.
	Builder string
	// Subjects are what was made.
	Subjects []Artifact
	// Parameters are what a user chose.
	Parameters map[string]any
	// Materials are what it was made from.
	Materials []Artifact
}

// Write writes the statement. It has no time, so that the same image gives the same bytes.
func (s Statement) Write(to io.Writer) error {
	madeBy := map[string]any{"id": builder}
	if s.Builder != "" {
		madeBy["version"] = map[string]string{"commit": s.Builder}
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{
		"_type":         statementType,
		"subject":       s.Subjects,
		"predicateType": predicateType,
		"predicate": map[string]any{
			"buildDefinition": map[string]any{"buildType": buildType, "externalParameters": s.Parameters, "resolvedDependencies": s.Materials},
			"runDetails":      map[string]any{"builder": madeBy},
		},
	})
}

// Read reads a statement that Write wrote.
func Read(from io.Reader) (Statement, error) {
	var s struct {
		Subject   []Artifact `json:"subject"`
		Predicate struct {
			BuildDefinition struct {
				BuildType            string         `json:"buildType"`
				ExternalParameters   map[string]any `json:"externalParameters"`
				ResolvedDependencies []Artifact     `json:"resolvedDependencies"`
			} `json:"buildDefinition"`
			RunDetails struct {
				Builder struct {
					Version struct {
						Commit string `json:"commit"`
					} `json:"version"`
				} `json:"builder"`
			} `json:"runDetails"`
		} `json:"predicate"`
	}
	if err := json.NewDecoder(from).Decode(&s); err != nil {
		return Statement{}, err
	}
	definition := s.Predicate.BuildDefinition
	if definition.BuildType != buildType {
		return Statement{}, fmt.Errorf("buildType is %q, want %q", definition.BuildType, buildType)
	}
	return Statement{
		Builder: s.Predicate.RunDetails.Builder.Version.Commit, Subjects: s.Subject, Parameters: definition.ExternalParameters, Materials: definition.ResolvedDependencies,
	}, nil
}
