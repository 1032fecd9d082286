// SPDX-License-Identifier: Apache-2.0

package nodefiles

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_2"
	"github.com/coreos/ignition/v2/config/v3_2/types"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/utils/ptr"
)

// Ignition returns the Ignition configuration, version 3.2.0, that writes the files.
func Ignition(files []File) types.Config {
	config := types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}
	for _, file := range files {
		config.Storage.Files = append(config.Storage.Files, types.File{
			Node: types.Node{Path: file.Path, Overwrite: ptr.To(true), User: types.NodeUser{Name: ptr.To("root")}},
			FileEmbedded1: types.FileEmbedded1{
				Mode: ptr.To(int(file.Mode)),
				// The source document's form of a data URL.
				Contents: types.Resource{Source: ptr.To("data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(file.Content))},
			},
		})
	}
	return config
}

// CheckIgnition lets Ignition's own parser judge a configuration, and compares what it would
// write with the files. name is for errors.
func CheckIgnition(name string, config types.Config, files []File) error {
	data, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	parsed, report, err := ignition.Parse(data)
	if err != nil || len(report.Entries) > 0 {
		return fmt.Errorf("%s: Ignition: %w: %s", name, err, strings.TrimSpace(report.String()))
	}
	var written []File
	for _, file := range parsed.Storage.Files {
		content, err := dataurl.DecodeString(*file.Contents.Source)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", name, file.Path, err)
		}
		written = append(written, File{Path: file.Path, Mode: fs.FileMode(*file.Mode), Content: content.Data})
	}
	return File{Path: name}.MustEqual(files, written)
}
