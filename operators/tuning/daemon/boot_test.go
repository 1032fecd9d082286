// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/tuning/tunedtest"
)

// tunedAtBoot is Boot with what is kept in $1, for a kernel whose directories are in $2, in the boot $3, with the limit $4. The root file
// system has this host's programs.
func tunedAtBoot() int {
	root := kept{os.Args[1]}.root()
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			panic(err)
		}
	}
	for _, name := range []string{"usr", "tmp", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
			panic(err)
		}
	}
	if err := unix.Mount("/usr", filepath.Join(root, "usr"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		panic(err)
	}
	limit, err := time.ParseDuration(os.Args[4])
	if err != nil {
		panic(err)
	}
	d := &Daemon{Python: tunedtest.Python, Kept: os.Args[1], EtcDir: filepath.Join(os.Args[2], "etc"), RunDir: filepath.Join(os.Args[2], "run"), BootID: os.Args[3], ApplyLimit: limit}
	if err := d.Boot(logr.NewContext(context.Background(), klog.Background())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// keepImage keeps the root file system $1 in $2, with something mounted in it.
func keepImage() int {
	token := filepath.Join(os.Args[1], "run", "secrets")
	if err := unix.Mount("tmpfs", token, "tmpfs", 0, ""); err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(token, "token"), []byte("secret"), 0o600); err != nil {
		panic(err)
	}
	if err := (kept{os.Args[2]}).storeImage(os.Args[1], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// keeping makes the daemons of a node keep what its next boot needs. The image is known, and is kept already.
func (n *node) keeping() {
	n.Helper()
	n.kept, n.unit = n.TempDir(), filepath.Join(n.TempDir(), "partition-tuned.service")
	if err := os.WriteFile(n.unit, nil, 0o600); err != nil {
		n.Fatal(err)
	}
	n.keepsImage("test")
	if err := os.Mkdir(kept{n.kept}.root(), 0o700); err != nil {
		n.Fatal(err)
	}
}

// keepsImage gives the image that is kept a name.
func (n *node) keepsImage(name string) {
	n.Helper()
	if err := os.WriteFile(kept{n.kept}.image(), []byte(name), 0o600); err != nil {
		n.Fatal(err)
	}
}

// client returns one as the daemon has it, which can watch.
func (n *node) client() client.WithWatch {
	n.Helper()
	c, err := NewClient(n.Config)
	if err != nil {
		n.Fatal(err)
	}
	return c
}

// keeps waits until a profile is kept that has this text.
func (n *node) keeps(text string) {
	n.Helper()
	testenv.Eventually(n.T, 20*time.Second, func() error {
		data, err := os.ReadFile(kept{n.kept}.profile())
		if err != nil || !strings.Contains(string(data), text) {
			return fmt.Errorf("kept is %s: %v", data, err)
		}
		return nil
	})
}

// goesDown ends what runs on a node, and gives the kernel its own values. Nothing of /run is left.
func (n *node) goesDown() {
	n.Helper()
	pid := n.PID()
	n.daemon.Kill()
	if pid != "" {
		n.gone(pid)
	}
	for _, directory := range []string{"etc", "run"} {
		entries, _ := filepath.Glob(filepath.Join(n.Dir, directory, "*"))
		for _, entry := range entries {
			if err := os.RemoveAll(entry); err != nil {
				n.Fatal(err)
			}
		}
	}
	n.Kernel.Boot(n.T)
	n.boots++
}

// hostApplies runs what the host's unit runs, and returns what it said.
func (n *node) hostApplies(limit time.Duration, want bool) string {
	n.Helper()
	process := n.Kernel.Run(n.T, "tuned-at-boot", n.kept, n.Dir, fmt.Sprint("boot ", n.boots), limit.String())
	if err := process.Wait(n.T, time.Minute); (err == nil) != want {
		n.Fatalf("it ended with %v: %s", err, process.Log())
	}
	return process.Log()
}

func TestTheProfileIsAppliedAtABootBeforeTheOperandRuns(t *testing.T) {
	n := newNode(t)
	n.keeping()
	n.start()
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	n.keeps("=32768")

	// What waits for a boot is applied at that boot.
	n.wantsDeferred(tunedv1.DeferAlways, spec(sets("40000")))
	n.deferred("32768")
	n.keeps("=40000")
	n.goesDown()
	if got := n.Value(t); got != tunedtest.Original {
		t.Fatalf("%s is %s after a boot", tunedtest.Sysctl, got)
	}
	if log := n.hostApplies(time.Minute, true); !strings.Contains(log, `"TuneD has applied the profile" profile="p"`) {
		t.Errorf("it said %s", log)
	}
	if got := n.Value(t); got != "40000" {
		t.Errorf("%s is %s before the operand runs", tunedtest.Sysctl, got)
	}
	if log := n.hostApplies(time.Minute, true); !strings.Contains(log, "was applied in this boot already") {
		t.Errorf("a second time it said %s", log)
	}

	// The operand goes on with it: another change waits for another boot.
	n.start()
	n.asExpected(30 * time.Second)
	if log := n.daemon.Log(); !strings.Contains(log, "TuneD applied the profile at the boot") {
		t.Errorf("the operand said %s", log)
	}
	n.wantsDeferred(tunedv1.DeferAlways, spec(sets("50000")))
	n.deferred("40000")
	n.keeps("=50000")

	// One that came while the node was down does not.
	n.goesDown()
	n.wantsDeferred(tunedv1.DeferAlways, spec(sets("60000")))
	n.hostApplies(time.Minute, true)
	if got := n.Value(t); got != "50000" {
		t.Errorf("%s is %s before the operand runs", tunedtest.Sysctl, got)
	}
	n.start()
	n.Eventually(t, "60000", 20*time.Second)
	n.asExpected(30 * time.Second)
	n.keeps("=60000")

	n.wantsNothing()
	n.Eventually(t, tunedtest.Original, 20*time.Second)
	testenv.Eventually(t, 10*time.Second, func() error {
		if _, err := os.Stat(kept{n.kept}.profile()); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the profile that is kept: %v", err)
		}
		return nil
	})
	n.goesDown()
	n.hostApplies(time.Minute, true)
	if got := n.Value(t); got != tunedtest.Original {
		t.Errorf("%s is %s without a profile", tunedtest.Sysctl, got)
	}
}

// A profile may take a node's network away, or end its kernel. It can be corrected only while the node reaches the API server.
func TestABootLeavesOutAProfileAfterWhichTheNodeWasNotSeen(t *testing.T) {
	n := newNode(t)
	n.keeping()
	boot := func(applies bool) {
		t.Helper()
		n.goesDown()
		log, want := n.hostApplies(time.Minute, applies), tunedtest.Original
		if applies {
			want = "32768"
		} else if !strings.Contains(log, "the profile p is left out at this boot") {
			t.Errorf("it said %s", log)
		}
		if got := n.Value(t); got != want {
			t.Errorf("%s is %s before the operand runs, want %s", tunedtest.Sysctl, got, want)
		}
	}
	n.probation = time.Hour
	n.start()
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	n.keeps("=32768")
	boot(false)

	// The operand says so before it applies the profile, which may be the last that the node says.
	updates, err := n.client().Watch(t.Context(), &tunedv1.ProfileList{}, client.InNamespace(tunedv1.Namespace), client.MatchingFields{"metadata.name": n.name})
	if err != nil {
		t.Fatal(err)
	}
	defer updates.Stop()
	n.probation = time.Second
	n.start()
	for event := range updates.ResultChan() {
		profile := event.Object.(*tunedv1.Profile)
		degraded := meta.FindStatusCondition(profile.Status.Conditions, tunedv1.ConditionDegraded)
		if degraded == nil || degraded.Reason != ReasonLeftOutAtBoot {
			continue
		}
		if meta.IsStatusConditionTrue(profile.Status.Conditions, tunedv1.ConditionApplied) || profile.Status.ObservedGeneration != profile.Generation {
			t.Errorf("what is told first, about generation %d, is %+v", profile.Generation, profile.Status)
		}
		break
	}
	proven := func() {
		t.Helper()
		vanishes(t, kept{n.kept}.tried())
	}
	// The node is still there.
	proven()
	n.asExpected(30 * time.Second)
	boot(true)
	boot(false)

	// Once the node has been seen after such a boot, later boots apply the profile even while the API server is down.
	for range 2 {
		n.start()
		proven()
		boot(true)
	}
	boot(true)
	boot(true)
	// With another TuneD the same profile may cut the node off.
	n.keepsImage("another")
	boot(true)
	boot(false)
	n.keepsImage("test")

	// A profile that was corrected while the node was down is applied, and nothing is reported as left out.
	n.probation = time.Hour
	n.start()
	n.wants(spec(sets("40000")))
	n.asExpected(30 * time.Second)
	n.keeps("=40000")
	boot(false)
	n.wants(spec(sets("50000")))
	n.start()
	n.asExpected(30 * time.Second)
	n.Eventually(t, "50000", time.Second)

	// A note does not outlive its profile.
	n.keeps("=50000")
	boot(false)
	n.wantsNothing()
	n.start()
	proven()
}

// vanishes waits until there is no such file.
func vanishes(t *testing.T, path string) {
	t.Helper()
	testenv.Eventually(t, 30*time.Second, func() error {
		if data, err := os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is %q: %v", path, data, err)
		}
		return nil
	})
}

// The API server answers all the while.
func TestABootLeavesOutNoProfileWithWhichTunedEnds(t *testing.T) {
	n := newNodeOf(t, nil)
	n.keeping()
	directory := t.TempDir()
	d := &Daemon{Node: n.name, Client: n.client(), Python: "/bin/false", EtcDir: filepath.Join(directory, "etc"), RunDir: filepath.Join(directory, "run"), BootID: "boot",
		Kept: n.kept, Unit: n.unit, Image: "test", Settle: time.Millisecond, Probation: time.Second}
	ended := make(chan error)
	go func() { ended <- d.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	n.wants(spec(sets("32768")))
	n.keeps("=32768")
	vanishes(t, kept{n.kept}.tried())
}

// The kubelet waits for it.
func TestAProfileThatHangsAtABootIsGivenUp(t *testing.T) {
	n := newNode(t)
	n.keeping()
	if err := os.WriteFile(filepath.Join(kept{n.kept}.root(), "hang.sh"), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	profile := &tunedv1.Profile{Spec: spec(sets("32768") + "[script]\nscript=/hang.sh\n")}
	if err := (kept{n.kept}).store(profile); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	log := n.hostApplies(3*time.Second, false)
	if !strings.Contains(log, "TuneD has not applied the profile p after 3") {
		t.Errorf("it said %s", log)
	}
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
	n.gone(n.PID())
}

func TestNothingIsKeptWithoutTheUnit(t *testing.T) {
	n := newNode(t)
	n.keeping()
	if err := os.Remove(n.unit); err != nil {
		t.Fatal(err)
	}
	set := n.daemonSet()
	n.start()
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	empty := func() {
		t.Helper()
		if entries, err := os.ReadDir(n.kept); err != nil || len(entries) > 0 {
			t.Errorf("kept are %v: %v", entries, err)
		}
	}
	empty()

	// With the unit, and then without the DaemonSet.
	if err := os.WriteFile(n.unit, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.wants(spec(sets("40000")))
	n.keeps("=40000")
	if err := n.Client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if err := n.daemon.Terminate(t, 30*time.Second); err != nil {
		t.Error(err)
	}
	empty()
}

func TestARootFileSystemIsKeptWithoutWhatIsMountedInIt(t *testing.T) {
	kernel := tunedtest.New(t)
	root, directory := t.TempDir(), t.TempDir()
	for _, path := range []string{"usr/bin", "run/secrets", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string, mode fs.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("usr/bin/program", "one", 0o755)
	write("text", "text", 0o644)
	for path, target := range map[string]string{"bin": "usr/bin", "away": "/etc/shadow"} {
		if err := os.Symlink(target, filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(root, "tmp", "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	keep := func(image string) {
		t.Helper()
		process := kernel.Run(t, "keep-image", root, directory, image)
		if err := process.Wait(t, 30*time.Second); err != nil {
			t.Fatalf("%v: %s", err, process.Log())
		}
	}
	compare := func(program string) {
		t.Helper()
		var got []string
		if err := filepath.WalkDir(kept{directory}.root(), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			text := ""
			switch {
			case err != nil:
				return err
			case info.Mode().IsRegular():
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text = string(data)
			case info.Mode()&fs.ModeSymlink != 0:
				if text, err = os.Readlink(path); err != nil {
					return err
				}
			}
			name, err := filepath.Rel(kept{directory}.root(), path)
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", name, info.Mode(), text)))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		want := []string{
			". drwx------", "away Lrwxrwxrwx /etc/shadow", "bin Lrwxrwxrwx usr/bin", "run drwxr-xr-x", "text -rw-r--r-- text", "tmp drwxr-xr-x",
			"usr drwxr-xr-x", "usr/bin drwxr-xr-x", "usr/bin/program -rwxr-xr-x " + program,
		}
		if !slices.Equal(got, want) {
			t.Errorf("kept are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	keep("image:1")
	compare("one")
	write("usr/bin/program", "two", 0o755)
	keep("image:1")
	compare("one")
	keep("image:2")
	compare("two")
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != 2 {
		t.Errorf("there are %v: %v", entries, err)
	}
}

// What could not be copied whole takes no room: the host's disk may be full.
func TestAHalfCopiedImageIsRemoved(t *testing.T) {
	root, directory := t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	// The copy has a path that is longer than the kernel takes.
	deep := root
	for len(deep) < unix.PathMax-200 {
		deep = filepath.Join(deep, strings.Repeat("r", 100))
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (kept{directory}).storeImage(root, "image:1"); err == nil {
		t.Fatal("it was copied")
	}
	if entries, err := os.ReadDir(directory); err != nil || len(entries) > 0 {
		t.Errorf("there are %v: %v", entries, err)
	}
}

// The host's unit names what the pods of the operand have, and gives up after partition-node has.
func TestTheUnitOfTheHostFitsTheOperand(t *testing.T) {
	text := func(path ...string) string {
		data, err := os.ReadFile(filepath.Join(append([]string{testenv.Module()}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	unit, set := text("nodepool", "partition-tuned.service"), text("tuning", "controller", "daemonset.yaml")
	for _, match := range regexp.MustCompile(`/(?:var/lib|run)/partition-node/tuned/?[a-z]*`).FindAllString(unit, -1) {
		directory := match
		if strings.HasPrefix(match, "/var") {
			directory = "/var/lib/partition-node/tuned"
		}
		if !strings.Contains(set, "path: "+directory+"\n") {
			t.Errorf("the pods have no %s", directory)
		}
	}
	k := kept{"/var/lib/partition-node/tuned"}
	for _, want := range []string{k.profile() + "\n", k.image() + "\n", k.root() + "/usr/bin/partition-node tuned-at-boot\n", files{run: "/run/partition-node/tuned/originals"}.boot() + "\n", "Before=kubelet.service\n"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit has no %s", want)
		}
	}
}

func TestAKeptProfileIsReadAsItWasWritten(t *testing.T) {
	k := kept{filepath.Join(t.TempDir(), "kept")}
	if profile, err := k.load(); profile != nil || err != nil {
		t.Errorf("nothing is %+v, %v", profile, err)
	}
	profile := &tunedv1.Profile{Spec: spec(sets("32768"))}
	profile.Name, profile.UID, profile.Generation = "n1", "u", 3
	if err := k.store(profile); err != nil {
		t.Fatal(err)
	}
	got, err := k.load()
	if err != nil || hashOf(got) != hashOf(profile) || got.UID != "u" || got.Generation != 3 {
		t.Errorf("it is %+v, %v", got, err)
	}
	if err := os.WriteFile(k.profile(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var syntax *json.SyntaxError
	if _, err := k.load(); !errors.As(err, &syntax) || !strings.Contains(err.Error(), "profile.json") {
		t.Errorf("one that was cut off is %v", err)
	}
}
