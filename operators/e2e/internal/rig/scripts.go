// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"workload.openshift.io/kubernetes/cluster/host"
)

// Scripts runs scripts of make on clusters of tests, which the command cluster leaves alone.
type Scripts struct {
	// Repository is the directory of the checkout.
	Repository string
	// Hosted and Management are kubeconfigs of administrators. With a cluster of this host that has the paths Programs, the companions
	// run as processes.
	Hosted, Management string
	Programs           host.Paths
}

// asCluster is the argument that makes a test binary the command cluster, as far as the scripts need it.
const asCluster = "as-cluster"

// PlayCluster is for the start of TestMain. If a script has started the test binary as the command cluster, it does what that does, and ends
// the process.
func PlayCluster() {
	if len(os.Args) < 7 || os.Args[1] != asCluster {
		return
	}
	s := Scripts{Hosted: os.Args[2], Management: os.Args[3], Programs: host.Paths{Data: os.Args[4], Run: os.Args[5]}}
	if err := s.play(os.Args[6:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// play does what cluster/cmd does: environment [--management], and run NAME -- PROGRAM [ARGUMENT...].
func (s Scripts) play(arguments []string) error {
	switch {
	case arguments[0] == "environment":
		kubeconfig := s.Hosted
		if len(arguments) > 1 && arguments[1] == "--management" {
			kubeconfig = s.Management
		}
		fmt.Println("KUBECONFIG=" + kubeconfig)
		return nil
	case arguments[0] == "run" && len(arguments) > 3 && arguments[2] == "--":
		_, err := host.New(host.Config{Paths: s.Programs}).Run(arguments[1], nil, arguments[3:]...)
		return err
	}
	return fmt.Errorf("this is no command of the tests: %q", arguments)
}

// Run runs a script with the command cluster as its first argument, and returns what it prints.
func (s Scripts) Run(name string, environment []string, arguments ...string) (output string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("", "companions-e2e-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	shim := filepath.Join(directory, "cluster")
	if err := os.WriteFile(shim, fmt.Appendf(nil, "#!/bin/sh\nexec '%s' %s '%s' '%s' '%s' '%s' \"$@\"\n", self, asCluster, s.Hosted, s.Management, s.Programs.Data, s.Programs.Run), 0o700); err != nil {
		return "", err
	}
	command := exec.Command(filepath.Join(s.Repository, "scripts", name), append([]string{shim}, arguments...)...)
	command.Dir = s.Repository
	command.Env = append(os.Environ(), environment...)
	text, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", name, err, text)
	}
	return string(text), err
}
