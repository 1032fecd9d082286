// SPDX-License-Identifier: Apache-2.0

// Package vm tests companions on nodes in virtual machines, as users have them: with systemd, cgroup v2
// and reboots. What it knows of VMs is package cluster/vm.
package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/tidy"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/operators/e2e/internal/rig"
)

var (
	files vm.Files
	// payload has the files of every VM, by their paths there.
	payload map[string]string
	// images is a directory that images build has written, and controller the program
	// partition-controller of this host.
	images, controller string
	// plugin is the program kubectl-partition, and chromium a browser.
	plugin, chromium string
	// companion is the one whose rows are run. Empty means that those of all are.
	companion string
	// passed is a directory with a file for each row that has passed with this payload.
	passed string
)

func TestMain(m *testing.M) {
	rig.PlayCluster()
	if len(os.Args) == 3 && os.Args[1] == asKiller {
		os.Exit(killAt(os.Args[2]))
	}
	if len(os.Args) == 4 && os.Args[1] == asReader {
		os.Exit(printNUMA(os.Args[2], os.Args[3]))
	}
	var agent string
	flag.StringVar(&files.Bin, "bin", "", "directory of the patched Kubernetes binaries")
	flag.StringVar(&files.Tools, "tools", "", "directory of etcd, containerd, runc and the CNI plugins")
	flag.StringVar(&files.Tree, "tree", "", "source tree of the release")
	flag.StringVar(&files.Cluster, "cluster", "", "the command of module cluster")
	flag.StringVar(&images, "images", "", "directory of the companions' images, as images build writes it")
	flag.StringVar(&controller, "controller", "", "the program partition-controller")
	flag.StringVar(&plugin, "plugin", "", "the program kubectl-partition")
	flag.StringVar(&chromium, "chromium", "", "the program chromium")
	flag.StringVar(&agent, "agent", "", "the program partition-agent")
	flag.StringVar(&companion, "companion", "", "the companion whose rows are run; empty means all")
	flag.StringVar(&passed, "passed", "", "directory in which it is noted which rows have passed; such a row is not run again with the same programs. Empty means that all are run")
	flag.Parse()
	log.SetLogger(klog.Background()) // the client of the provider complains without one
	if files.Bin == "" {
		fmt.Println("SKIPPED: the tests in VMs need their flags; make e2e-vm OPERATOR=cpupolicy builds what they name and sets them")
		return
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		fmt.Println("SKIPPED: the tests in VMs do not run, because", err)
		return
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	files.More = map[string]string{"partition-agent": agent, "vm.test": self}
	archives, err := filepath.Glob(filepath.Join(images, "archives", "*.tar"))
	if err != nil || len(archives) == 0 {
		fmt.Printf("%s has no images: %v\n", images, err)
		os.Exit(1)
	}
	for _, archive := range archives {
		files.More[filepath.Join("images", filepath.Base(archive))] = archive
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	down := func() error { return errors.Join(management().Down(context.Background()), vm.Down(), files.Close()) }
	return tidy.Run(vm.Dir, down, func() int {
		err := os.Mkdir(vm.Dir, 0o700)
		if err == nil {
			err = host.Own(vm.Dir)
		}
		if err == nil {
			payload, err = files.Payload(context.Background())
		}
		if err == nil && passed != "" {
			err = openPassed()
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		return m.Run()
	})
}

// openPassed makes passed the directory for what rows depend on, and removes those of others: the payload, the
// companion's manifests, and the plugin.
func openPassed() error {
	depend := maps.Clone(payload)
	if plugin != "" {
		depend["plugin"] = plugin
	}
	const deploy = "../../deploy"
	if err := filepath.WalkDir(deploy, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			depend[path] = path
		}
		return err
	}); err != nil {
		return err
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(depend)) {
		file, err := os.Open(depend[name])
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, name)
		_, err = io.Copy(sum, file)
		file.Close()
		if err != nil {
			return err
		}
	}
	name := hex.EncodeToString(sum.Sum(nil))[:16]
	entries, err := os.ReadDir(passed)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != name {
			err = errors.Join(err, os.RemoveAll(filepath.Join(passed, entry.Name())))
		}
	}
	passed = filepath.Join(passed, name)
	return os.MkdirAll(passed, 0o755)
}

var began = time.Now()

func progress(format string, args ...any) {
	fmt.Printf("%5.1fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}
