// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	toml "github.com/pelletier/go-toml/v2"
	"golang.org/x/tools/txtar"
	"k8s.io/component-base/version"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/partition"
)

// recordedCgroup are the files of a cgroup that are recorded, by their controllers on cgroup v1.
var recordedCgroup = map[string][]string{
	"cpuset":  {"cpuset.cpus", "cpuset.effective_cpus", "tasks"},
	"cpu":     {"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat"},
	"cpuacct": {"cpuacct.usage_percpu"},
	"":        {"cgroup.controllers", "cgroup.threads", "cpuset.cpus", "cpuset.cpus.effective", "cpuset.cpus.partition", "cpu.weight", "cpu.max", "cpu.stat", "cpu.pressure"},
}

// recordedProcess are the files of a process that are recorded.
var recordedProcess = []string{"status", "stat", "schedstat", "cgroup"}

// recordedRuntime is what is recorded of the runtime.
type recordedRuntime struct {
	Name    string        `json:"name"`
	Version string        `json:"version"`
	Pods    []recordedPod `json:"pods"`
}

type recordedPod struct {
	ID          string              `json:"id"`
	Namespace   string              `json:"namespace"`
	Name        string              `json:"name"`
	UID         string              `json:"uid"`
	Handler     string              `json:"handler,omitempty"`
	Annotations map[string]string   `json:"annotations,omitempty"`
	Containers  []recordedContainer `json:"containers"`
}

type recordedContainer struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// nodeFile is the file of a record from which [Recorded] makes a node again, and runtimeFile what this file has of the
// runtime. recordFiles are all files of a record.
const (
	nodeFile    = "node.txtar"
	runtimeFile = "runtime.json"
)

var recordFiles = []string{"README", "audit.json", nodeFile, "versions.json"}

// Record audits the node, and writes what a bug report needs to a new file: a directory, or an
// archive if its name ends in .tar.gz or .tgz. Only the owner can read it. contents says what is
// in it.
func Record(ctx context.Context, options Options, path string) (result *Result, contents []string, err error) {
	result, contents, byName, err := record(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	if top, ok := ArchiveTop(path); ok {
		return result, contents, writeArchive(path, top, result.Time.Time, byName)
	}
	return result, contents, writeDirectory(path, byName)
}

// ArchiveTop reports whether a file is to be an archive, by the end of its name: .tar.gz or .tgz. If so, it returns
// the name of the directory in it, below which everything is.
func ArchiveTop(path string) (top string, ok bool) {
	name := filepath.Base(path)
	for _, end := range []string{".tar.gz", ".tgz"} {
		if top, ok := strings.CutSuffix(name, end); ok {
			return top, true
		}
	}
	return "", false
}

// record audits the node, and returns the files of a record.
func record(ctx context.Context, options Options) (result *Result, contents []string, byName map[string][]byte, err error) {
	result, n, err := audit(ctx, options)
	if err != nil {
		return nil, nil, nil, err
	}
	files := []struct {
		name, what string
		data       func() ([]byte, error)
	}{
		{"audit.json", "what the audit found: findings, notes, and where each container may run and has run", func() ([]byte, error) { return json.MarshalIndent(result, "", "  ") }},
		{"versions.json", "versions of the kernel, the runtime and this program", func() ([]byte, error) { return json.MarshalIndent(n.versions(), "", "  ") }},
		{nodeFile, "what was read: pinning file, CPU manager's checkpoint, kubelet's record; its configuration, without headers and passwords of static pods; CRI-O's pools; cgroups, tasks and names of pods; the runtime's listing, without environment, mounts, and annotations that are not ours",
			func() ([]byte, error) { return n.archive(result.Findings) }},
	}
	var readme strings.Builder
	for _, f := range files {
		contents = append(contents, f.name+": "+f.what)
	}
	fmt.Fprintf(&readme, "Record of kubectl partition audit, %s.\n\n%s\n", result.Time.UTC().Format(time.RFC3339), strings.Join(contents, "\n"))
	byName = map[string][]byte{"README": []byte(readme.String())}
	for _, f := range files {
		if byName[f.name], err = f.data(); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return result, contents, byName, nil
}

func writeDirectory(path string, files map[string][]byte) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(path, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func writeArchive(path, top string, at time.Time, files map[string][]byte) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return pack(file, top, at, files)
}

// pack writes files, in the order of their names, as an archive in which they are below a directory.
func pack(w io.Writer, top string, at time.Time, files map[string][]byte) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: top + "/" + name, Mode: 0o600, Size: int64(len(files[name])), ModTime: at, Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(files[name]); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func (n *node) versions() map[string]string {
	kernel, _ := readText(filepath.Join(n.host.Proc, "version"))
	program := version.Get()
	return map[string]string{
		"kernel": kernel, "runtime": n.runtime.GetRuntimeName() + " " + n.runtime.GetRuntimeVersion(),
		"program": program.GitVersion, "go": program.GoVersion,
	}
}

// archive returns the files that were read, at their paths on the host, so that an audit of them
// has the same findings.
func (n *node) archive(findings []Finding) ([]byte, error) {
	var archive txtar.Archive
	add := func(path string, data []byte) {
		if !strings.HasSuffix(string(data), "\n") {
			data = append(data, '\n')
		}
		archive.Files = append(archive.Files, txtar.File{Name: strings.TrimPrefix(path, "/"), Data: data})
	}
	copied := func(from, to string) error {
		data, err := os.ReadFile(from)
		if err == nil {
			if filepath.Base(to) == "stat" { // the name of a process may have line breaks there
				data = bytes.ReplaceAll(bytes.TrimSpace(data), []byte("\n"), []byte(" "))
			}
			add(to, data)
		} else if !gone(err) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil
	}
	for path, from := range map[string]string{
		partition.PinningFilePath:                                      "",
		filepath.Join(defaultKubeletRoot, kubeletstate.CheckpointName): filepath.Join(n.kubelet.Root, kubeletstate.CheckpointName),
		filepath.Join(defaultKubeletRoot, partition.RecordName):        filepath.Join(n.kubelet.Root, partition.RecordName),
	} {
		if err := copied(n.host.at(cmp.Or(from, path)), path); err != nil {
			return nil, err
		}
	}
	if n.poolsErr != nil {
		add(partition.PinningFilePath+refused, []byte(n.poolsErr.Error()))
	}
	config, err := yaml.Marshal(n.kubelet.recorded())
	if err != nil {
		return nil, err
	}
	add(defaultKubeletConfig, config)
	if len(n.crio.workloads) > 0 || n.crio.infra != "" {
		data, err := toml.Marshal(map[string]any{"crio": map[string]any{"runtime": map[string]any{"infra_ctr_cpuset": n.crio.infra, "workloads": n.crio.byType()}}})
		if err != nil {
			return nil, err
		}
		add(crioFile, data)
	}
	kernel := n.host.disks()
	for _, path := range []string{"devices/system/cpu/online", "devices/system/cpu/isolated", "devices/virtual/workqueue/cpumask"} {
		kernel = append(kernel, filepath.Join(n.host.Sys, path))
	}
	for _, path := range kernel {
		if err := copied(path, "sys"+strings.TrimPrefix(path, n.host.Sys)); err != nil {
			return nil, err
		}
	}
	// The cgroups above those of pods decide as well.
	paths := map[string]bool{"/": true}
	for _, g := range n.groups {
		for path := g.usage.Cgroup; path != "/" && path != "."; path = filepath.Dir(path) {
			paths[path] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for controller, files := range recordedCgroup {
			if n.cgroups.v1 == (controller == "") {
				continue
			}
			for _, file := range files {
				if path == "/" && (file == "cgroup.threads" || file == "tasks") {
					continue // the host's
				}
				from := filepath.Join(n.cgroups.dir(controller, path), file)
				// On cgroup v2 some cannot be read where there are only groups.
				if err := copied(from, filepath.Join("sys/fs/cgroup", strings.TrimPrefix(from, n.cgroups.root))); err != nil && !errors.Is(err, syscall.EOPNOTSUPP) {
					return nil, err
				}
			}
		}
	}
	var moved []int
	for _, f := range findings {
		if f.Code == CodeMoved {
			moved = append(moved, f.task)
		}
	}
	for _, id := range slices.Concat(slices.Sorted(maps.Keys(n.inPods)), moved, []int{1}) {
		dir := strconv.Itoa(id)
		if t := n.tasks[id]; t.process != id && slices.Contains(moved, id) { // a thread, which is listed there alone
			dir = filepath.Join(strconv.Itoa(t.process), "task", dir)
		}
		for _, file := range recordedProcess {
			path := filepath.Join("proc", dir, file)
			if err := copied(filepath.Join(n.host.Proc, dir, file), path); err != nil {
				return nil, err
			}
		}
		if namespace := n.host.mountNamespace(id); namespace != "" {
			add(filepath.Join("proc", dir, "ns/mnt"), []byte(namespace))
		}
	}
	listing := recordedRuntime{Name: n.runtime.GetRuntimeName(), Version: n.runtime.GetRuntimeVersion()}
	for _, p := range n.pods {
		of := recordedPod{ID: p.sandbox, Namespace: p.namespace, Name: p.name, UID: p.uid, Handler: p.handler, Annotations: maps.Clone(p.annotations)}
		maps.DeleteFunc(of.Annotations, func(key, _ string) bool { return !partition.OwnsAnnotation(key) })
		for _, c := range p.containers {
			of.Containers = append(of.Containers, recordedContainer{c.id, c.name, c.pid})
		}
		listing.Pods = append(listing.Pods, of)
	}
	data, err := json.MarshalIndent(listing, "", "  ")
	if err != nil {
		return nil, err
	}
	add(runtimeFile, data)
	slices.SortFunc(archive.Files, func(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) })
	return txtar.Format(&archive), nil
}
