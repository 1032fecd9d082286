// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/companion"
	cpupolicy "workload.openshift.io/operators/cpupolicy/controller"
	"workload.openshift.io/operators/internal/testenv"
	numaresources "workload.openshift.io/operators/numaresources/controller"
	tuning "workload.openshift.io/operators/tuning/controller"
)

// imageSetting is a setting of a companion that names an image, with its value.
var imageSetting = regexp.MustCompile(`(?m)^  (\w+Image): (\S+)$`)

// What a companion starts on nodes is root there. A runtime may look for an image without a registry in any, so the image
// of a configuration as it is shipped is refused until somebody chooses one.
func TestNoCompanionStartsAnImageOfAnyRegistry(t *testing.T) {
	with := map[string]companion.Companion{"partition-agent": &cpupolicy.Companion{}, "partition-node": &numaresources.Companion{}, "topo-aware-scheduler": &numaresources.Companion{}, "partition-tuned": &tuning.Companion{}}
	files, err := filepath.Glob(filepath.Join(testenv.Module(), "deploy", "*", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		qualified := imageSetting.ReplaceAllString(string(data), "  $1: registry.example.com/$2")
		for _, found := range imageSetting.FindAllStringSubmatch(string(data), -1) {
			name, image := found[1], found[2]
			seen = append(seen, name)
			configure := func(text string) error {
				path := filepath.Join(t.TempDir(), "config.yaml")
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				config, err := configv1alpha1.Read(path, "ns")
				if err != nil {
					t.Fatal(err)
				}
				return companion.Configure(with[image], config)
			}
			if err := configure(qualified); err != nil {
				t.Errorf("%s, with a registry: %v", file, err)
			}
			err := configure(strings.Replace(qualified, "registry.example.com/"+image, image, 1))
			if err == nil || !strings.Contains(err.Error(), "settings."+name) || !strings.Contains(err.Error(), image) {
				t.Errorf("%s, as it is shipped: the error is %v, want one that names settings.%s and %s", file, err, name, image)
			}
		}
	}
	slices.Sort(seen)
	if want := []string{"agentImage", "exporterImage", "operandImage", "schedulerImage"}; !slices.Equal(slices.Compact(seen), want) {
		t.Errorf("the shipped configurations have the images %q, want %q", seen, want)
	}
}
