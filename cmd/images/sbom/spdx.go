// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// namespace begins the names of documents, which must be unique: that of an image ends with its digest.
const namespace = "https://workload.openshift.io/spdx/"

// purposes are SPDX's words for the types of components.
var purposes = map[cdx.ComponentType]string{
	cdx.ComponentTypeApplication: "APPLICATION", cdx.ComponentTypeContainer: "CONTAINER", cdx.ComponentTypeLibrary: "LIBRARY", cdx.ComponentTypeOS: "OPERATING-SYSTEM",
}

// WriteSPDX writes the same bill of materials in SPDX's format, version 2.3, as JSON. The same image gives the same bytes.
func WriteSPDX(to io.Writer, image Image) error {
	bom := describe(image)
	self := *bom.Metadata.Component
	document := spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: self.Name, DocumentNamespace: namespace + self.BOMRef,
		CreationInfo: &spdx.CreationInfo{Created: bom.Metadata.Timestamp, Creators: []common.Creator{{CreatorType: "Tool", Creator: "workload.openshift.io/cmd/images"}}},
	}
	ids := map[string]common.ElementID{}
	for i, component := range append([]cdx.Component{self}, *bom.Components...) {
		id := common.ElementID(fmt.Sprintf("Package-%d", i))
		ids[component.BOMRef] = id
		document.Packages = append(document.Packages, packageOf(id, component))
	}
	relate := func(a common.ElementID, relationship string, b common.ElementID) {
		document.Relationships = append(document.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(a)), Relationship: relationship, RefB: common.MakeDocElementID("", string(b)),
		})
	}
	relate(document.SPDXIdentifier, common.TypeRelationshipDescribe, ids[self.BOMRef])
	for _, edge := range *bom.Dependencies {
		relationship := common.TypeRelationshipDependsOn
		if edge.Ref == self.BOMRef {
			relationship = common.TypeRelationshipContains
		}
		for _, ref := range *edge.Dependencies {
			relate(ids[edge.Ref], relationship, ids[ref])
		}
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document)
}

// packageOf returns a component as a package of SPDX. Where it can be downloaded from is not known; its package URL says what
// it is.
func packageOf(id common.ElementID, component cdx.Component) *spdx.Package {
	p := &spdx.Package{
		PackageSPDXIdentifier: id, PackageName: component.Name, PackageVersion: component.Version, PackageDownloadLocation: "NOASSERTION",
		PrimaryPackagePurpose: purposes[component.Type], PackageDescription: component.Description,
	}
	if component.Hashes != nil {
		for _, hash := range *component.Hashes {
			p.PackageChecksums = append(p.PackageChecksums, common.Checksum{Algorithm: common.SHA256, Value: hash.Value})
		}
	}
	if component.PackageURL != "" {
		p.PackageExternalReferences = []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: component.PackageURL}}
	}
	if component.Properties != nil {
		var lines []string
		for _, property := range *component.Properties {
			lines = append(lines, property.Name+"="+property.Value)
		}
		p.PackageComment = strings.Join(lines, "\n")
	}
	return p
}
