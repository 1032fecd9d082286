// SPDX-License-Identifier: Apache-2.0

// Command kubectl-partition is a kubectl plugin for those who run partitioned nodes. It also
// runs by itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

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
	return cli.ExitCode(command.ExecuteContext(ctx), streams.ErrOut)
}
