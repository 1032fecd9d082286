// SPDX-License-Identifier: Apache-2.0

// Command kubectl-partition is a kubectl plugin for those who run partitioned nodes. It also
// runs by itself.
//
// As kubectl_complete-partition, which may be a link to it, it completes command lines for
// kubectl (k8s.io/kubectl, pkg/cmd/plugin/plugin_completion.go).
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/internal/cli"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a command that waits for its input
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	command := cli.Command(streams)
	if filepath.Base(os.Args[0]) == "kubectl_complete-partition" {
		command.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	return cli.ExitCode(command.ExecuteContext(ctx), streams.ErrOut)
}
