// SPDX-License-Identifier: Apache-2.0

// Package vm runs virtual machines that are nodes as users have them: Debian with
// systemd and cgroup v2, with any number of CPUs, threads and NUMA nodes. A VM needs QEMU, and
// nothing else of the host: neither KVM nor a network. To make the image that VMs boot needs
// root.
//
// A VM has two disks. What it writes to the first is kept in a file over a base image, which never
// changes. The second has our programs, and is mounted at /payload. Everything that belongs to
// VMs is in [Dir]; [Down] stops the VMs and removes it.
//
// The package knows how a VM is made, booted and entered. Package host, which runs in the VM,
// knows how a node is configured, and this package must not repeat that.
package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"workload.openshift.io/kubernetes/cluster/atomicfile"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/poll"
)

// Dir has a directory for each VM: its disk, its state, and what it printed.
const Dir = "/var/lib/workload-partitioning-vms"

// Config says what VM to run.
type Config struct {
	// Number differs between the VMs of a host. 1 and 2 have the link, and an address on it that ends in
	// the number. Zero means 1.
	Number int
	// Topology of the CPUs; its zero value means [DefaultTopology].
	Topology Topology
	// Memory in mebibytes; zero means 6144.
	Memory int
	// Append is added to the kernel's command line.
	Append string
	// Payload are files of the host, by their paths below /payload.
	Payload map[string]string
	// Progress is called with what is being done; it may be nil.
	Progress func(format string, args ...any)
}

// VM is a virtual machine of this host.
type VM struct {
	Config Config
	dir    string
	qemu   host.Component
	state  state
	shell  shell
}

// state is kept in a file, by which another command finds the VM.
type state struct {
	// SSH and API are ports of the loopback interface that QEMU forwards to the VM.
	SSH, API int
	// Base and Payload are images; Key is the file of the private key.
	Base, Payload, Key string
	// Accelerator is QEMU's: KVM or emulation.
	Accelerator string
}

// New describes a VM; Create makes and starts it.
func New(config Config) *VM {
	config.Number = cmp.Or(config.Number, 1)
	config.Topology = cmp.Or(config.Topology, DefaultTopology)
	config.Memory = cmp.Or(config.Memory, 6144)
	vm := &VM{Config: config}
	vm.dir = filepath.Join(Dir, vm.Name())
	return vm
}

// Name returns the name of the VM, and of the node in it.
func (vm *VM) Name() string { return "node-" + strconv.Itoa(vm.Config.Number) }

// linked reports whether the VM has the link, which has two ends.
func (vm *VM) linked() bool { return vm.Config.Number <= 2 }

// Address returns the VM's address on the link between VMs.
func (vm *VM) Address() string { return "10.248.0." + strconv.Itoa(vm.Config.Number) }

func (vm *VM) say(format string, args ...any) {
	if vm.Config.Progress != nil {
		vm.Config.Progress(format, args...)
	}
}

func (vm *VM) file(name string) string { return filepath.Join(vm.dir, name) }

// Console returns the file with everything that the VM printed on its console.
func (vm *VM) Console() string { return vm.file("console.log") }

// Accelerator returns what runs the CPUs of a VM that was created: kvm, or tcg with its options, which emulates them.
func (vm *VM) Accelerator() string { return vm.state.Accelerator }

// Log returns the file with everything that QEMU printed.
func (vm *VM) Log() string { return vm.file(filepath.Join("logs", "qemu.log")) }

// MakeBase makes the system that all VMs start from, unless it is there.
func MakeBase(ctx context.Context, say func(string, ...any)) error {
	_, _, unlock, err := lockBase(ctx, say)
	if err == nil {
		unlock()
	}
	return err
}

// lockBase returns the cache's directory and the base image in it, which it makes if it is missing.
// No other process changes the directory until unlock is called.
func lockBase(ctx context.Context, say func(string, ...any)) (dir, base string, unlock func(), err error) {
	if dir, err = cacheDir(); err != nil {
		return "", "", nil, err
	}
	if unlock, err = lock(dir); err != nil {
		return "", "", nil, err
	}
	if base, err = makeBase(ctx, dir, say); err != nil {
		unlock()
		return "", "", nil, err
	}
	return dir, base, unlock, nil
}

// images returns the images and the key that VMs are made of, and makes those that are missing.
func images(ctx context.Context, payload map[string]string, say func(string, ...any)) (base, disk, private string, err error) {
	dir, base, unlock, err := lockBase(ctx, say)
	if err != nil {
		return "", "", "", err
	}
	defer unlock()
	private, err = key(ctx, dir)
	if err != nil {
		return "", "", "", err
	}
	files := map[string]string{"authorized_keys": private + ".pub"}
	for name, file := range payload {
		files[name] = file
	}
	disk, err = makePayload(ctx, dir, files)
	return base, disk, private, err
}

// Create makes a new VM, with an empty disk over the base image, and starts it.
// It first removes what an earlier VM of that number has left.
func (vm *VM) Create(ctx context.Context) error {
	if err := vm.Remove(); err != nil {
		return err
	}
	base, payload, private, err := images(ctx, vm.Config.Payload, vm.say)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(vm.dir, "logs"), 0o700); err != nil {
		return err
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	vm.state = state{SSH: ports[0], API: ports[1], Base: base, Payload: payload, Key: private, Accelerator: vm.accelerator(ctx, filepath.Dir(base))}
	data, err := json.Marshal(vm.state)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(vm.file("state.json"), data, 0o600); err != nil {
		return err
	}
	if err := run(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, vm.file("disk.qcow2")); err != nil {
		return err
	}
	return vm.Boot(ctx)
}

// Boot starts a VM that is not running, with the disk that it has, and waits until one can enter
// it.
func (vm *VM) Boot(ctx context.Context) error {
	if err := vm.start(); err != nil {
		return err
	}
	return vm.awaitBoot(ctx, "")
}

// start starts QEMU.
func (vm *VM) start() error {
	base, accelerator := filepath.Dir(vm.state.Base), vm.state.Accelerator
	args := []string{"qemu-system-x86_64", "-name", vm.Name(), "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-accel", accelerator, "-cpu", cpuModel(accelerator)}
	args = append(args, vm.Config.Topology.args(vm.Config.Memory)...)
	args = append(args,
		"-kernel", filepath.Join(base, "vmlinuz"), "-initrd", filepath.Join(base, "initrd"),
		"-append", strings.TrimSpace(kernelArgs+" systemd.hostname="+vm.Name()+" "+vm.Config.Append),
		"-drive", "file="+vm.file("disk.qcow2")+",if=virtio,cache=unsafe", "-drive", "file="+vm.state.Payload+",if=virtio,format=raw,readonly=on",
		"-netdev", fmt.Sprintf("user,id=outside,restrict=on,hostfwd=tcp:127.0.0.1:%d-:22,hostfwd=tcp:127.0.0.1:%d-:%d", vm.state.SSH, vm.state.API, host.DefaultPorts.APIServer), "-device", "virtio-net-pci,netdev=outside",
		"-device", "virtio-rng-pci", "-chardev", "file,id=console,append=on,path="+vm.Console(), "-serial", "chardev:console")
	if vm.linked() {
		args = append(args, "-netdev", vm.link(), "-device", fmt.Sprintf("virtio-net-pci,netdev=link,mac=52:54:00:57:50:%02x", vm.Config.Number))
	}
	vm.qemu = host.NewProcess(vm.dir, "qemu", args...)
	vm.say("booting %s, %s CPUs, with %s", vm.Name(), vm.Config.Topology, accelerator)
	return vm.qemu.Start()
}

// link returns QEMU's argument for the cable between VM 1 and VM 2, of which each has an end. No one
// else can plug in: the ends are files that belong to root.
func (vm *VM) link() string {
	ends := []string{filepath.Join(Dir, "link-1"), filepath.Join(Dir, "link-2")}
	if vm.Config.Number == 2 {
		ends[0], ends[1] = ends[1], ends[0]
	}
	return fmt.Sprintf("dgram,id=link,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", ends[0], ends[1])
}

const (
	// bootLimit is for a boot under emulation on two busy CPUs, which takes a few minutes.
	bootLimit = 5 * time.Minute
	// silenceLimit is for the console. Even under emulation a VM that boots prints something every
	// ten seconds, and one that shuts down every twenty.
	silenceLimit = time.Minute
	// boots is how often a boot is tried that the emulation spoils.
	boots = 3
)

// awaitBoot waits until one can enter the VM, and until its boot ID is no longer the one before,
// which is empty for the first boot.
//
// About one boot in a hundred gets stuck under QEMU 7.2's emulation with many threads: the
// kernel changes its own code ("sched_clock: Marking stable") while all CPUs run it, and
// their registers show that they still run a translation of the old code. Seldom, QEMU itself
// crashes with a segmentation fault. awaitBoot starts such a VM again.
func (vm *VM) awaitBoot(ctx context.Context, before string) error {
	for try := 1; ; try++ {
		spoiled, err := vm.awaitShell(ctx, before)
		if err == nil || !spoiled || try == boots {
			return err
		}
		vm.say("%v; starting it again", err)
		if err := vm.PowerOff(); err != nil {
			return err
		}
		if err := vm.start(); err != nil {
			return err
		}
	}
}

// awaitShell is one try of awaitBoot; spoiled means that the kernel got stuck in it, or that QEMU
// crashed.
func (vm *VM) awaitShell(ctx context.Context, before string) (spoiled bool, err error) {
	begin, from, said := time.Now(), fileSize(vm.Console()), fileSize(vm.Log())
	limited, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	for {
		if vm.qemu.PID() == 0 {
			// QEMU says why it ends, unless it crashes.
			if fileSize(vm.Log()) == said {
				return true, fmt.Errorf("QEMU of %s crashed; the console is in %s", vm.Name(), vm.Console())
			}
			return false, fmt.Errorf("%s ended: %s; its console is in %s", vm.Name(), lastLine(vm.Log()), vm.Console())
		}
		attempt, end := context.WithTimeout(limited, 20*time.Second)
		now, err := vm.Run(attempt, "cat /proc/sys/kernel/random/boot_id")
		end()
		switch {
		case err != nil:
			vm.shell.close()
		case now != before:
			return false, nil
		default:
			err = errors.New("it has not shut down")
		}
		quiet, text := vm.saidSince(begin, from)
		// A VM that shuts down, or has reached the login, is not stuck in its boot.
		stuck := quiet > silenceLimit && !strings.Contains(text, " login:") && (before == "" || strings.Contains(text, "Linux version"))
		if limited.Err() != nil || stuck {
			return stuck, fmt.Errorf("%s cannot be entered after %s (%w); its console %s has been quiet for %s and ends with %q", vm.Name(),
				time.Since(begin).Round(time.Second), errors.Join(err, ctx.Err()), vm.Console(), quiet.Round(time.Second), lastLine(vm.Console()))
		}
		select {
		case <-limited.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// saidSince returns for how long the console has been quiet, counted from a time at the earliest,
// and what it has after a number of bytes.
func (vm *VM) saidSince(since time.Time, from int64) (quiet time.Duration, text string) {
	if info, err := os.Stat(vm.Console()); err == nil && info.ModTime().After(since) {
		since = info.ModTime()
	}
	if data, err := os.ReadFile(vm.Console()); err == nil && int64(len(data)) > from {
		text = string(data[from:])
	}
	return time.Since(since), text
}

// fileSize returns the size of a file in bytes, and zero if there is none.
func fileSize(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// PowerOff ends the VM as a power cut does; its disk stays.
func (vm *VM) PowerOff() error {
	vm.shell.close()
	return vm.qemu.Kill()
}

// Reboot has the VM shut down in an orderly way and boot again, and waits until one can enter it.
func (vm *VM) Reboot(ctx context.Context) error {
	before, err := vm.Run(ctx, "cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	// The connection may end before the command does.
	var refused *ssh.ExitError
	if _, err := vm.Run(ctx, "systemctl reboot"); errors.As(err, &refused) {
		return err
	}
	vm.shell.close()
	return vm.awaitBoot(ctx, before)
}

// Shutdown has the VM shut down in an orderly way, and waits until it has. Boot then starts it with the kernel's command line that
// Config has by then, as after a change of a boot loader's configuration.
func (vm *VM) Shutdown(ctx context.Context) error {
	// The connection may end before the command does.
	var refused *ssh.ExitError
	if _, err := vm.Run(ctx, "systemctl poweroff"); errors.As(err, &refused) {
		return err
	}
	vm.shell.close()
	return poll.Until(ctx, 200*time.Millisecond, bootLimit, func(context.Context) error {
		if vm.qemu.PID() != 0 {
			return fmt.Errorf("%s has not shut down; its console %s ends with %q", vm.Name(), vm.Console(), lastLine(vm.Console()))
		}
		return nil
	})
}

// Remove ends the VM and removes everything that belongs to it.
func (vm *VM) Remove() error {
	vm.shell.close()
	if _, err := os.Stat(vm.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := host.NewProcess(vm.dir, "qemu").Kill(); err != nil {
		return err
	}
	return os.RemoveAll(vm.dir)
}

// Down ends all VMs of this host and removes them.
func Down() error {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		vm := VM{dir: filepath.Join(Dir, entry.Name())}
		if err := vm.Remove(); err != nil {
			return err
		}
	}
	return os.RemoveAll(Dir)
}

// imagesInUse returns the images of all VMs that exist, running or not.
func imagesInUse() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(Dir, "*", "state.json"))
	if err != nil {
		return nil, err
	}
	var images []string
	for _, file := range files {
		var s state
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			return nil, err
		}
		images = append(images, s.Base, s.Payload)
	}
	return images, nil
}

// freePorts finds ports of the loopback interface on which no process listens.
func freePorts(count int) (ports []int, err error) {
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		// Not before all are found, or one port could be found twice.
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func lastLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}
