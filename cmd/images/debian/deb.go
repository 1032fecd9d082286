// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// Deb is a package to be written.
type Deb struct {
	Name, Version, Architecture, Section string
	Maintainer, Homepage                 string
	Depends, Recommends                  []string
	// Summary is one line, and Description the lines below it.
	Summary     string
	Description []string
	// Files are what it installs, and ConfigFiles those of them that dpkg leaves as their
	// administrator wants them, as paths with a leading slash.
	Files       *rootfs.Tree
	ConfigFiles []string
	// Scripts are maintainer scripts, by name, such as postinst.
	Scripts map[string]string
	Date    time.Time
}

// Write writes the package as deb(5) has it. dpkg-deb would do the same, but with a compression that
// depends on its version.
func (d *Deb) Write(to io.Writer) error {
	var data bytes.Buffer
	if err := compressed(&data, d.Files, d.Date); err != nil {
		return err
	}
	control, err := d.control()
	if err != nil {
		return err
	}
	var controls bytes.Buffer
	if err := compressed(&controls, control, d.Date); err != nil {
		return err
	}
	if _, err := io.WriteString(to, "!<arch>\n"); err != nil {
		return err
	}
	for _, member := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", controls.Bytes()}, {"data.tar.gz", data.Bytes()}} {
		if _, err := fmt.Fprintf(to, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", member.name, d.Date.Unix(), 0, 0, "100644", len(member.data)); err != nil {
			return err
		}
		if len(member.data)%2 == 1 {
			member.data = append(member.data, '\n')
		}
		if _, err := to.Write(member.data); err != nil {
			return err
		}
	}
	return nil
}

func compressed(to io.Writer, tree *rootfs.Tree, date time.Time) error {
	stream := gzip.NewWriter(to)
	if err := tree.Write(stream, "./", date); err != nil {
		return err
	}
	return stream.Close()
}

func (d *Deb) control() (*rootfs.Tree, error) {
	var sums strings.Builder
	var size int64
	for _, name := range d.Files.Names() {
		entry, _ := d.Files.Get(name)
		if !entry.Mode.IsRegular() {
			continue
		}
		file, err := entry.Open()
		if err != nil {
			return nil, err
		}
		hash := md5.New()
		_, err = io.Copy(hash, file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(hash.Sum(nil)), name)
		size += entry.Size
	}
	var fields strings.Builder
	for _, field := range [][2]string{
		{"Package", d.Name}, {"Version", d.Version}, {"Architecture", d.Architecture}, {"Maintainer", d.Maintainer},
		{"Installed-Size", fmt.Sprint((size + 1023) / 1024)}, {"Depends", strings.Join(d.Depends, ", ")},
		{"Recommends", strings.Join(d.Recommends, ", ")}, {"Section", d.Section}, {"Priority", "optional"},
		{"Homepage", d.Homepage}, {"Description", strings.Join(append([]string{d.Summary}, d.Description...), "\n ")},
	} {
		if field[1] != "" {
			fmt.Fprintf(&fields, "%s: %s\n", field[0], field[1])
		}
	}
	control := rootfs.New()
	control.File("control", 0o644, []byte(fields.String()))
	control.File("md5sums", 0o644, []byte(sums.String()))
	if len(d.ConfigFiles) > 0 {
		control.File("conffiles", 0o644, []byte(strings.Join(d.ConfigFiles, "\n")+"\n"))
	}
	for name, script := range d.Scripts {
		control.File(name, 0o755, []byte(script))
	}
	return control, nil
}
