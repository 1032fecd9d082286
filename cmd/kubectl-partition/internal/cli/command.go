// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of kubectl-partition: flags, help, and how results are
// printed. The commands' logic is in separate packages, which other programs may
// use.
package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/node/topology"
)

// Command returns the command kubectl-partition. A file of this package, named after it, has
// each of its commands.
func Command(streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "kubectl-partition",
		Short: "Set up, check and explain partitioned nodes",
		Long: `Set up, check and explain workload partitioning.

Exit codes of all commands:
  0  nothing is wrong
  1  the command did its work, and found something
  2  the command could not do its work: its input is wrong, or it may not read what it needs`,
		Version:       version.Get().GitVersion,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl partition"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	// Cobra would have -v mean it, which is the verbosity of kubectl.
	command.Flags().Bool("version", false, "print the version")
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	command.AddCommand(newAlerts(streams), newAudit(streams), newClaim(streams), newClasses(streams), newConsole(streams), newCPUPolicy(streams), newExplain(streams), newGather(streams), newLint(streams), newPlan(streams), newRender(streams), newStatus(streams), newTuning(streams))
	addCompletion(command, streams)
	return command
}

// options are the flags and arguments of a command, and the steps that each command goes through.
type options interface {
	// Complete takes the arguments, and reads what the flags name.
	Complete(command *cobra.Command, args []string) error
	// Validate returns what is wrong with flags and arguments together.
	Validate() error
	Run(ctx context.Context) error
}

// steps is what a command with these options runs.
func steps(o options) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		if err := o.Complete(command, args); err != nil {
			return err
		}
		if err := o.Validate(); err != nil {
			return err
		}
		return o.Run(command.Context())
	}
}

// flagsAlone has the steps of a command that takes no arguments, and whose flags are independent.
type flagsAlone struct{}

func (flagsAlone) Complete(*cobra.Command, []string) error { return nil }
func (flagsAlone) Validate() error                         { return nil }

// arguments keeps those of a command.
type arguments struct {
	flagsAlone
	args []string
}

func (a *arguments) Complete(_ *cobra.Command, args []string) error {
	a.args = args
	return nil
}

// list is a result that has several items.
type list[T any] struct {
	metav1.TypeMeta `json:",inline"`
	Items           []T `json:"items"`
}

// verdict prints a result, and returns errFound if the command found something.
func verdict(found bool, format output.Format, out io.Writer, result any, table func(w io.Writer, wide bool) error) error {
	if err := format.Print(out, result, table); err != nil {
		return err
	}
	if found {
		return errFound
	}
	return nil
}

// fromNode is the flag --from-node, which reads the CPUs of this host.
type fromNode struct {
	given bool
	sysfs string
}

func (f fromNode) validate(command string) error {
	if f.given && f.sysfs == topology.Sysfs {
		return needsNode(command + " --from-node")
	}
	return nil
}

// read returns nil without the flag.
func (f fromNode) read() (*topology.Topology, error) {
	if !f.given {
		return nil, nil
	}
	host, err := topology.Read(f.sysfs)
	if err != nil {
		return nil, fmt.Errorf("this host's topology: %w", err)
	}
	return host, nil
}

// goos is where this command runs; tests replace it.
var goos = runtime.GOOS

// needsNode returns an error unless this host can be a node.
func needsNode(what string) error {
	if goos == "linux" {
		return nil
	}
	return fmt.Errorf("%s reads the host on which it runs, and this one cannot be a node: it runs %s, not Linux; run it on the node", what, goos)
}
