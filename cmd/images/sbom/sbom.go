// SPDX-License-Identifier: Apache-2.0

// Package sbom writes what is in an image as a bill of materials, in the formats of CycloneDX and SPDX: the Go
// modules of each program, and Debian's packages. It must not know how an image is made.
package sbom

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"workload.openshift.io/kubernetes/cmd/images/debian"
	"workload.openshift.io/kubernetes/cmd/images/program"
)

// Image is an image of one platform.
type Image struct {
	// Name has the repository, and Version is what its binaries say. Release is upstream's, such as
	// v1.37.0.
	Name, Version, Release, Platform string
	// Digest is that of the image's manifest, such as sha256:...
	Digest   string
	Date     time.Time
	Programs []*program.Program
	// Suite is the Debian release that the packages are of.
	Suite    string
	Packages []debian.Package
	// Base is the reference of an image that it was built on, and empty if it was built on none.
	// What is in that is not known.
	Base, BaseDigest string
}

// WriteCycloneDX writes the bill of materials in CycloneDX's format, version 1.6, as JSON. The same image gives the same
// bytes.
func WriteCycloneDX(to io.Writer, image Image) error {
	return cdx.NewBOMEncoder(to, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(describe(image), cdx.SpecVersion1_6)
}

// describe returns the bill of materials. Its components and dependencies are sorted.
func describe(image Image) *cdx.BOM {
	bom := cdx.NewBOM()
	self := cdx.Component{
		BOMRef: image.Name + "@" + image.Digest, Type: cdx.ComponentTypeContainer, Name: image.Name, Version: image.Version,
		Hashes:     hashes(strings.TrimPrefix(image.Digest, "sha256:")),
		Properties: &[]cdx.Property{{Name: "platform", Value: image.Platform}},
	}
	bom.Metadata = &cdx.Metadata{Timestamp: image.Date.UTC().Format(time.RFC3339), Component: &self}
	components := map[string]cdx.Component{}
	dependencies := map[string][]string{}
	add := func(of string, component cdx.Component) {
		components[component.BOMRef] = component
		dependencies[of] = append(dependencies[of], component.BOMRef)
	}
	for _, p := range image.Programs {
		binary := cdx.Component{BOMRef: "program/" + p.Name, Type: cdx.ComponentTypeApplication, Name: p.Name, Version: image.Version, Hashes: hashes(p.SHA256)}
		if module := p.FIPS(); module != "" {
			binary.Properties = &[]cdx.Property{{Name: "GOFIPS140", Value: module}}
		}
		add(self.BOMRef, binary)
		for _, module := range modules(p.Info) {
			path, version := identify(module, image.Version, image.Release)
			purl := "pkg:golang/" + path + "@" + url.QueryEscape(version)
			add(binary.BOMRef, cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl})
		}
	}
	if number := numbers[image.Suite]; number != "" && len(image.Packages) > 0 {
		add(self.BOMRef, cdx.Component{BOMRef: "os/debian@" + number, Type: cdx.ComponentTypeOS, Name: "debian", Version: number})
	}
	for _, p := range image.Packages {
		purl := DebianURL(image.Suite, p)
		add(self.BOMRef, cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: purl, Hashes: hashes(p.SHA256)})
	}
	if image.Base != "" {
		add(self.BOMRef, cdx.Component{
			BOMRef: "base/" + image.Base, Type: cdx.ComponentTypeContainer, Name: image.Base, Version: image.BaseDigest,
			Description: "the base of the image; its contents are not described here",
			Hashes:      hashes(strings.TrimPrefix(image.BaseDigest, "sha256:")),
		})
	}
	var listed []cdx.Component
	for _, ref := range slices.Sorted(maps.Keys(components)) {
		listed = append(listed, components[ref])
	}
	var edges []cdx.Dependency
	for _, ref := range slices.Sorted(maps.Keys(dependencies)) {
		on := dependencies[ref]
		slices.Sort(on)
		on = slices.Compact(on)
		edges = append(edges, cdx.Dependency{Ref: ref, Dependencies: &on})
	}
	bom.Components, bom.Dependencies = &listed, &edges
	return bom
}

// modules are those of a program. The first is Go's library: what some builds of Go say after their version,
// such as experiments, is not of it. The main module has no version. Go makes one up of the commit and of
// upstream's last tag, and would call v1.37.2 with the series v1.37.3-0.20261027120104-c783bd39edce.
func modules(info *debug.BuildInfo) []*debug.Module {
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	return append([]*debug.Module{{Path: "stdlib", Version: version}, {Path: info.Main.Path}}, info.Deps...)
}

// identify returns the path and the version of a module. One of the work tree has no version of its
// own, so it has the image's. Upstream's staging modules have the one that upstream publishes them
// under, v0.37.0 for v1.37.0, since advisories name that. An upstream module that a patched directory replaces, as carry
// plugin makes it, keeps the version that is required.
func identify(module *debug.Module, version, release string) (path, ofModule string) {
	path, ofModule = module.Path, module.Version
	if minor, ok := strings.CutPrefix(release, "v1."); ok && strings.HasPrefix(path, "k8s.io/") && path != "k8s.io/kubernetes" {
		version = "v0." + minor
	}
	if by := module.Replace; by != nil && (strings.HasPrefix(by.Path, ".") || strings.HasPrefix(by.Path, "/")) {
		if strings.HasPrefix(ofModule, "v0.0.0") {
			ofModule = version
		}
	} else if by != nil {
		path, ofModule = by.Path, by.Version
	}
	if ofModule == "" || ofModule == "(devel)" {
		ofModule = version
	}
	return path, ofModule
}

// numbers are those of Debian's releases, by their names: scanners know releases by numbers.
var numbers = map[string]string{"bookworm": "12", "trixie": "13"}

// DebianURL is the package URL of a Debian package of a release, such as bookworm. Advisories are of source
// packages, so it names that if it is another.
func DebianURL(suite string, p debian.Package) string {
	distro := suite
	if number := numbers[suite]; number != "" {
		distro = "debian-" + number
	}
	purl := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=%s", p.Name, url.QueryEscape(p.Version), p.Architecture, distro)
	if p.Source != "" {
		purl += "&upstream=" + url.QueryEscape(strings.TrimSuffix(strings.Replace(p.Source, " (", "@", 1), ")"))
	}
	return purl
}

func hashes(sha256 string) *[]cdx.Hash {
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sha256}}
}
