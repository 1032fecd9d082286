// SPDX-License-Identifier: Apache-2.0

package provenance

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestAStatementIsReadAsItWasWritten(t *testing.T) {
	for _, s := range []Statement{
		{},
		{
			Builder:    "0123456789012345678901234567890123456789",
			Subjects:   []Artifact{{Name: "registry.example.com/kubelet", Digest: map[string]string{"sha256": "01"}}},
			Parameters: map[string]any{"version": "v1.37.0+wp.1234567", "platforms": []any{"linux/amd64"}},
			Materials:  []Artifact{{Name: "base", URI: "https://example.com", Digest: map[string]string{"gitCommit": "02"}}},
		},
	} {
		var written bytes.Buffer
		if err := s.Write(&written); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(&written); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("got %+v (%v), want %+v", got, err, s)
		}
	}
}

func TestWhatIsNoStatementOfAnImageIsRefused(t *testing.T) {
	for content, want := range map[string]string{
		"nonsense": "invalid character",
		`{"predicate": {"buildDefinition": {"buildType": "https://example.com"}}}`: `buildType is "https://example.com", want "https://workload.openshift.io/images/v1"`,
	} {
		if _, err := Read(strings.NewReader(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", content, err, want)
		}
	}
}
