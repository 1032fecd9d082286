// SPDX-License-Identifier: Apache-2.0

// Command partition-node has the daemons that companions run on nodes. Each writes to the API what it sees of its own node,
// and an admission policy binds what it may write to the node in its token. What changes a node in one step, without the
// API, is partition-agent.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use:               "partition-node",
		Short:             "Run the daemon of a companion on its node",
		Version:           version.Get().GitVersion,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	command.AddCommand(newTunedCommand(), newTopologyCommand())
	return command
}
