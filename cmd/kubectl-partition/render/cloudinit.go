// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"workload.openshift.io/kubernetes/node/nodefiles"
)

// cloudConfig is the part of cloud-init's user data that is used here (cloud-init, modules
// write_files and runcmd).
type cloudConfig struct {
	WriteFiles []cloudFile `json:"write_files"`
	RunCmd     [][]string  `json:"runcmd,omitempty"`
}

type cloudFile struct {
	Path string `json:"path"`
	// Permissions is octal.
	Permissions string `json:"permissions"`
	Owner       string `json:"owner"`
	Content     string `json:"content"`
}

func renderCloudInit(nodes []nodefiles.Node, _ Options) (r Rendered, err error) {
	for _, node := range nodes {
		files, err := filesOf(node, typesOf(nodes))
		if err != nil {
			return Rendered{}, err
		}
		var c cloudConfig
		for _, file := range files.all() {
			c.WriteFiles = append(c.WriteFiles, cloudFile{file.Path, fmt.Sprintf("%#o", file.Mode), "root:root", string(file.Content)})
		}
		has := func(path string) bool {
			return slices.ContainsFunc(files.host, func(f nodefiles.File) bool { return f.Path == path })
		}
		// Files are written before most units start, and systemd has read its own by then.
		if len(files.host) > 0 {
			c.RunCmd = append(c.RunCmd, []string{"systemctl", "daemon-reexec"})
		}
		if has(nodefiles.WorkqueuePath) {
			c.RunCmd = append(c.RunCmd, []string{"systemd-tmpfiles", "--create", nodefiles.WorkqueuePath})
		}
		if has(nodefiles.IRQBalancePath) {
			c.RunCmd = append(c.RunCmd, []string{"systemctl", "try-restart", "irqbalance.service"})
		}
		if slices.Contains(node.Host, nodefiles.KThreads) && !node.SetAside().IsEmpty() {
			c.RunCmd = append(c.RunCmd, []string{"systemctl", "start", nodefiles.KThreadsUnit + ".timer"})
		}
		if has(nodefiles.DisksPath) {
			c.RunCmd = append(c.RunCmd, []string{"udevadm", "control", "--reload"}, []string{"udevadm", "trigger", "--action=change", "--subsystem-match=block"})
		}
		if len(files.grub) > 0 {
			c.RunCmd = append(c.RunCmd, []string{"update-grub"})
		}
		name := "cloud-init.yaml"
		if len(nodes) > 1 {
			name = "cloud-init-" + node.Role + ".yaml"
		}
		file, err := nodefiles.YAML(name, 0o644, "#cloud-config\n", c)
		if err != nil {
			return Rendered{}, err
		}
		r.Files = append(r.Files, file)
		r.note(files.notes(node))
		if slices.Contains(node.Host, nodefiles.Affinity) {
			r.note([]string{"CPUAffinity holds for services that start after cloud-init has written it, and for all after the next boot."})
		}
	}
	return r, nil
}
