// SPDX-License-Identifier: Apache-2.0

// Package nodeprogram is what the programs of a node have in common: their root command, and how they end.
package nodeprogram

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
)

// NewCommand returns a root command of the build's version, which has these commands and no others.
func NewCommand(name, short string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use:               name,
		Short:             short,
		Version:           version.Get().GitVersion,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	command.AddCommand(commands...)
	return command
}

// Run runs a command, whose context ends with SIGINT or SIGTERM. It returns the exit code, and writes an error to stderr.
func Run(command *cobra.Command) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	return 0
}
