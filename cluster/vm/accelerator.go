package vm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const emulation = "tcg,thread=multi"

// kernelArgs are those of every VM. Without the word on the time stamp counter a
// kernel under emulation takes the time from a device, which makes everything two times
// slower; and there are no secrets in a VM to be kept from those in it.
const kernelArgs = "root=/dev/vda rw console=ttyS0 net.ifnames=0 panic=10 tsc=reliable mitigations=off cryptomgr.notests"

// cpuModel is the host's own CPU under KVM. Under emulation it is a plain one: programs
// use what it lacks if it is there, and QEMU is slow at vectors of more than 128 bits.
func cpuModel(accelerator string) string {
	if accelerator == emulation {
		return "Westmere" // Intel's, since a kernel sees no threads of a core on qemu64
	}
	return "host"
}

// accelerator is what QEMU is to use: KVM where a kernel starts under it, for a device
// that is there may still not work, in a virtual machine or a container for example.
// Anywhere else it is emulation, which always works.
func (vm *VM) accelerator(ctx context.Context, base string) string {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return emulation
	}
	const limit = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Without a root file system the kernel panics, and that ends QEMU.
	console, _ := exec.CommandContext(ctx, "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-accel", "kvm", "-cpu", "host",
		"-m", "256M", "-no-reboot", "-serial", "stdio", "-kernel", filepath.Join(base, "vmlinuz"), "-append", "console=ttyS0 panic=-1").Output()
	if bytes.Contains(console, []byte("Kernel panic")) {
		return "kvm"
	}
	vm.say("there is /dev/kvm, but no kernel starts under it")
	return emulation
}
