// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"bytes"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"workload.openshift.io/kubernetes/cmd/images/debian"
	"workload.openshift.io/kubernetes/cmd/images/program"
)

func TestAModuleIsIdentifiedByWhatWasCompiled(t *testing.T) {
	for _, test := range []struct {
		name, path, version string
		module              debug.Module
	}{
		{"a module", "k8s.io/klog/v2", "v2.140.0", debug.Module{Path: "k8s.io/klog/v2", Version: "v2.140.0"}},
		{"one of the tree", "k8s.io/kubernetes", "v1.37.0+wp.1234567", debug.Module{Path: "k8s.io/kubernetes", Version: "(devel)"}},
		{"a staging module of the tree", "k8s.io/api", "v0.37.0", debug.Module{Path: "k8s.io/api", Version: "(devel)"}},
		{"a staging module replaced by a directory", "k8s.io/api", "v0.37.0", debug.Module{Path: "k8s.io/api", Version: "v0.0.0", Replace: &debug.Module{Path: "./staging/src/k8s.io/api"}}},
		{"one replaced by a directory", "workload.openshift.io/partition", "v1.37.0+wp.1234567", debug.Module{Path: "workload.openshift.io/partition", Version: "v0.0.0", Replace: &debug.Module{Path: "../../staging/src/workload.openshift.io/partition"}}},
		{"one replaced by a fork", "example.com/fork", "v1.2.0", debug.Module{Path: "example.com/original", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.2.0"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if path, version := identify(&test.module, "v1.37.0+wp.1234567", "v1.37.0"); path != test.path || version != test.version {
				t.Errorf("it is %s@%s, want %s@%s", path, version, test.path, test.version)
			}
		})
	}
}

// TestModulesOfTheTreeHaveTheImagesVersion has what go version -m says of the kubelet of v1.37.2, and the Go of
// Red Hat.
func TestModulesOfTheTreeHaveTheImagesVersion(t *testing.T) {
	info, err := debug.ParseBuildInfo(`path	k8s.io/kubernetes/cmd/kubelet
mod	k8s.io/kubernetes	v1.37.3-0.20261027120104-c783bd39edce	
dep	github.com/davecgh/go-spew	v1.1.2-0.20180830191138-d8f796af33cc	h1:U9qPSI2PIWSS1VwoXQT9A3Wy9MM3WgvqSxFWenqJduM=
dep	k8s.io/apiserver	(devel)	
dep	workload.openshift.io/kubernetes	(devel)	
dep	workload.openshift.io/partition	v0.0.0-20261127045750-c7b4d5b5cabf
=>	../../staging/src/workload.openshift.io/partition	(devel)	
build	-trimpath=true
`)
	if err != nil {
		t.Fatal(err)
	}
	info.GoVersion = "go1.26.10 (Red Hat 1.26.10-1.el9) X:strictfipsruntime"
	var out bytes.Buffer
	image := Image{Name: "kubelet", Version: "v1.37.2+wp.c783bd3", Release: "v1.37.2", Digest: "sha256:1234", Programs: []*program.Program{{Name: "kubelet", SHA256: "1234", Info: info}}}
	if err := Write(&out, image); err != nil {
		t.Fatal(err)
	}
	bom := cdx.BOM{}
	if err := cdx.NewBOMDecoder(&out, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, component := range *bom.Components {
		if component.Type == cdx.ComponentTypeLibrary {
			got = append(got, component.Name+" "+component.Version)
		}
	}
	want := []string{
		"github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc", "k8s.io/apiserver v0.37.2", "k8s.io/kubernetes v1.37.2+wp.c783bd3",
		"stdlib 1.26.10", "workload.openshift.io/kubernetes v1.37.2+wp.c783bd3", "workload.openshift.io/partition v1.37.2+wp.c783bd3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the components are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestADebianPackageNamesItsReleaseAndItsSource(t *testing.T) {
	for _, test := range []struct {
		name, suite, want string
		p                 debian.Package
	}{
		{"its source has its name", "bookworm", "pkg:deb/debian/iptables@1.8.9-2?arch=amd64&distro=debian-12", debian.Package{Name: "iptables", Version: "1.8.9-2", Architecture: "amd64"}},
		{"its source has another name", "bookworm", "pkg:deb/debian/libacl1@2.3.1-3?arch=arm64&distro=debian-12&upstream=acl", debian.Package{Name: "libacl1", Version: "2.3.1-3", Architecture: "arm64", Source: "acl"}},
		{"its source has another version", "trixie", "pkg:deb/debian/bash@5.2.15-2%2Bb13?arch=amd64&distro=debian-13&upstream=bash%405.2.15-2", debian.Package{Name: "bash", Version: "5.2.15-2+b13", Architecture: "amd64", Source: "bash (5.2.15-2)"}},
		{"its release has no number yet", "sid", "pkg:deb/debian/iptables@1.8.9-2?arch=amd64&distro=sid", debian.Package{Name: "iptables", Version: "1.8.9-2", Architecture: "amd64"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := DebianURL(test.suite, test.p); got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
}
