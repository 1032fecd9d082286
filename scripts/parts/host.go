// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"time"
)

func has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// matches returns what a line of a file matches, and nil if none does.
func matches(file, line string) []string {
	text, _ := os.ReadFile(file) // another system may have none
	return regexp.MustCompile(`(?m)^` + line + `$`).FindStringSubmatch(string(text))
}

func isDebian() bool { return matches("/etc/os-release", "ID=debian") != nil }

// noVM says why virtual machines cannot run.
func noVM() string {
	free := 0
	if found := matches("/proc/meminfo", `MemAvailable: *(\d+) kB`); found != nil {
		free, _ = strconv.Atoi(found[1])
	}
	const needed = 8192
	switch {
	case runtime.GOARCH != "amd64":
		return "virtual machines need an x86_64 host"
	case !isDebian():
		return "virtual machines are made of Debian packages, but this host is not Debian"
	case free/1024 < needed:
		return fmt.Sprintf("virtual machines and QEMU need %d MiB of memory, which this host lacks", needed)
	}
	install := exec.Command("scripts/install-packages.sh", "vm")
	install.Stdout, install.Stderr = os.Stderr, os.Stderr
	if install.Run() != nil || !has("qemu-system-x86_64") || !has("debootstrap") || !has("qemu-img") {
		return "QEMU and debootstrap cannot be installed"
	}
	return ""
}

// noConformance says why there are no images of the specs, which are of Debian packages for one platform.
func noConformance() string {
	if runtime.GOARCH != "amd64" || !isDebian() {
		return "the images of the specs are made of Debian packages for x86_64, and this host is neither"
	}
	return ""
}

// noBrowser says why there is none. make operators-browser installs it where that is possible.
func noBrowser() string {
	if !has("chromium") && (os.Geteuid() != 0 || !has("apt-get")) {
		return "chromium is missing and cannot be installed here"
	}
	return ""
}

// noTime says whether it is late: the part after this takes 5 minutes, and on a busy host some more.
func noTime(r *run) string {
	if took := time.Since(r.begun); took > 40*time.Minute {
		return fmt.Sprintf("%d minutes of make %s had passed; make e2e-vm-core runs it", int(took.Minutes()), r.target)
	}
	return ""
}
