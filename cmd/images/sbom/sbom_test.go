// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"bytes"
	"cmp"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"

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
		{"one of upstream replaced by a directory with patches", "sigs.k8s.io/scheduler-plugins", "v0.34.7", debug.Module{Path: "sigs.k8s.io/scheduler-plugins", Version: "v0.34.7", Replace: &debug.Module{Path: "../_output/scheduler-plugins", Version: "(devel)"}}},
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
	if err := WriteCycloneDX(&out, image); err != nil {
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

func TestBothFormatsSayTheSame(t *testing.T) {
	info := func(settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26.10", Main: debug.Module{Path: "k8s.io/kubernetes"}, Settings: settings,
			Deps: []*debug.Module{{Path: "golang.org/x/net", Version: "v0.57.0"}}}
	}
	hash := strings.Repeat("ab", 32)
	image := Image{
		Name: "workload.openshift.io/kube-proxy", Version: "v1.37.2+wp.c783bd3-fips", Release: "v1.37.2", Platform: "linux/arm64", Digest: "sha256:" + hash,
		Date: time.Date(2026, 8, 26, 12, 44, 20, 0, time.FixedZone("east", 7200)), Suite: "bookworm",
		Programs: []*program.Program{
			{Name: "kube-proxy", SHA256: hash, Info: info(debug.BuildSetting{Key: "GOFIPS140", Value: "v1.0.0-c2097c7c"})},
			{Name: "kube-log-runner", SHA256: hash, Info: info()},
		},
		Packages: []debian.Package{{Name: "iptables", Version: "1.8.9-2", Architecture: "arm64", SHA256: hash}},
		Base:     "registry.example.com/base:1", BaseDigest: "sha256:" + hash,
	}
	var cycloneDX, first, second bytes.Buffer
	if err := cmp.Or(WriteCycloneDX(&cycloneDX, image), WriteSPDX(&first, image), WriteSPDX(&second, image)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same image gives other bytes")
	}
	bom := cdx.BOM{}
	if err := cdx.NewBOMDecoder(&cycloneDX, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	document, err := spdxjson.Read(&first)
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(document); err != nil {
		t.Error(err)
	}
	if document.CreationInfo.Created != "2026-08-26T10:44:20Z" || document.DocumentNamespace != "https://workload.openshift.io/spdx/workload.openshift.io/kube-proxy@sha256:"+hash {
		t.Errorf("%s was made at %s", document.DocumentNamespace, document.CreationInfo.Created)
	}
	// What a component is, and what it consists of, by its name.
	want, got, refs := map[string][]string{}, map[string][]string{}, map[string]string{}
	for _, component := range append(*bom.Components, *bom.Metadata.Component) {
		refs[component.BOMRef] = component.Name
		want[component.Name] = []string{component.Version, component.PackageURL}
		if component.Hashes != nil {
			want[component.Name] = append(want[component.Name], (*component.Hashes)[0].Value)
		}
	}
	for _, edge := range *bom.Dependencies {
		for _, on := range *edge.Dependencies {
			want[refs[edge.Ref]] = append(want[refs[edge.Ref]], refs[on])
		}
	}
	for _, p := range document.Packages {
		refs[string(p.PackageSPDXIdentifier)] = p.PackageName
		purl := ""
		if len(p.PackageExternalReferences) == 1 {
			purl = p.PackageExternalReferences[0].Locator
		}
		got[p.PackageName] = []string{p.PackageVersion, purl}
		if len(p.PackageChecksums) == 1 {
			got[p.PackageName] = append(got[p.PackageName], p.PackageChecksums[0].Value)
		}
		if is := p.PackageComment == "GOFIPS140=v1.0.0-c2097c7c"; is != (p.PackageName == "kube-proxy") {
			t.Errorf("%s has the comment %q", p.PackageName, p.PackageComment)
		}
	}
	for _, r := range document.Relationships {
		if of := refs[string(r.RefA.ElementRefID)]; of != "" {
			got[of] = append(got[of], refs[string(r.RefB.ElementRefID)])
		} else if r.Relationship != "DESCRIBES" || refs[string(r.RefB.ElementRefID)] != image.Name {
			t.Errorf("the document %s %s", r.Relationship, refs[string(r.RefB.ElementRefID)])
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("SPDX has\n%v\nand CycloneDX\n%v", got, want)
	}
	if parts := got[image.Name][3:]; !slices.Contains(parts, "kube-log-runner") || !slices.Contains(parts, "iptables") {
		t.Errorf("the image consists of %q", parts)
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
