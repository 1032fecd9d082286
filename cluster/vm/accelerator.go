// SPDX-License-Identifier: Apache-2.0

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

// kernelArgs are the kernel arguments of every VM. tsc=reliable: otherwise a kernel under emulation
// reads the time from a device, which makes everything twice as slow. mitigations=off: a VM has
// no secrets to keep from those in it.
const kernelArgs = "root=/dev/vda rw console=ttyS0 net.ifnames=0 panic=10 tsc=reliable mitigations=off cryptomgr.notests"

// cpuModel returns the host's own CPU under KVM, and an older one under emulation: programs use
// vectors of more than 128 bits if the CPU has them, and QEMU emulates these slowly.
func cpuModel(accelerator string) string {
	if accelerator == emulation {
		return "Westmere" // Intel's, since a kernel sees no threads of a core on qemu64
	}
	return "host"
}

// accelerator returns what QEMU uses: KVM if a kernel starts under it, otherwise emulation, which
// always works. That there is a device is not enough: in a virtual machine or a container it may
// not work.
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
	vm.say("there is /dev/kvm, but no kernel starts with it: using emulation")
	return emulation
}
