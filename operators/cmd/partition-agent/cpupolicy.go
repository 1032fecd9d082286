// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/executor"
)

func newCPUPolicy() *cobra.Command {
	command := &cobra.Command{
		Use:   "cpu-policy",
		Short: "Switch the CPU manager policy of this node's kubelet",
		Long: `Switch the CPU manager policy of this node's kubelet.

The controller of the companion cpupolicy runs these commands. A person needs prepare
and reserve, once for a node, and may look with observe.`,
	}
	command.AddCommand(newRun(), newSettle(), newExecute(), newPrepare(), newReserve(cpupolicy.Reservation), newObserve())
	return command
}

// hostFlags say where the host is, and how it runs its kubelet.
type hostFlags struct{ root, driver string }

func (f *hostFlags) addRoot(command *cobra.Command) {
	command.Flags().StringVar(&f.root, "host-root", "/", "where the host's root directory is, or a directory with what is needed of it: a mount of the pod")
}

func (f *hostFlags) addDriver(command *cobra.Command) {
	command.Flags().StringVar(&f.driver, "driver", string(operation.DriverKubelet), fmt.Sprintf("how the host runs its kubelet: one of %q", operation.Drivers()))
}

func newRun() *cobra.Command {
	var host hostFlags
	var text, terminationLog string
	command := &cobra.Command{
		Use:   "run",
		Short: "Carry out a request, and write the result: the program of the Job's pod",
		Long: `Carry out a request, and write the result as the termination message.

It copies itself and a journal to ` + executor.Directory + ` of the host, starts the host unit
` + executor.UnitName + `, and waits until the journal has a result. A request that the
journal has already is not begun again. With the driver command there is no host unit: it does the
steps itself.

Exit codes:
  0  the termination message has the result, whether the policy is in force or not
  1  there is no result: the operation may be under way`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			request, err := operation.ParseRequest([]byte(text))
			if err != nil {
				return fmt.Errorf("--request: %w", err)
			}
			result, err := run(command.Context(), host.root, request)
			if err != nil {
				return writeReason(terminationLog, fmt.Errorf("operation %s has no result yet: %w", request.ID, err))
			}
			if err := writeResult(terminationLog, result); err != nil {
				return err
			}
			// The Job replaces a pod that fails, and the result would have to wait until it gives up.
			fmt.Fprintf(command.OutOrStdout(), "operation %s: %s at step %s: %s\n", result.ID, result.Outcome, result.Step, result.Message)
			return nil
		},
	}
	host.addRoot(command)
	command.Flags().StringVar(&text, "request", "", "the request, as JSON")
	addTerminationLog(command, &terminationLog)
	utilruntime.Must(command.MarkFlagRequired("request"))
	return command
}

func addTerminationLog(command *cobra.Command, path *string) {
	command.Flags().StringVar(path, "termination-log", "/dev/termination-log", "file for the result, as JSON")
}

func writeResult(path string, result *operation.Result) error {
	message, err := result.Encode()
	if err != nil {
		return err
	}
	return os.WriteFile(path, message, 0o644)
}

// writeReason has a pod without a result say why. It returns the error.
func writeReason(path string, why error) error {
	return errors.Join(why, os.WriteFile(path, []byte(untrusted.Abbreviate(why.Error(), operation.MaxSize)), 0o644))
}

func newSettle() *cobra.Command {
	var host hostFlags
	var id, terminationLog string
	command := &cobra.Command{
		Use:   "settle",
		Short: "Have an operation end, without beginning it, and write its result",
		Long: `Have an operation end, without beginning it, and write its result as the termination message.

What has stopped the kubelet is finished first. What has changed nothing yet does not begin any
more, however late its pod comes.

Exit codes:
  0  it has ended
  1  it may be under way`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if problems := validation.IsDNS1123Label(id); problems != nil {
				return fmt.Errorf("--operation %q: %s", untrusted.Abbreviate(id, 80), strings.Join(problems, "; "))
			}
			agent, err := os.Executable()
			if err != nil {
				return err
			}
			h, err := executor.OpenHost(host.root)
			if err != nil {
				return err
			}
			result, err := h.Settle(command.Context(), id, agent)
			if err != nil {
				return writeReason(terminationLog, fmt.Errorf("operation %s may be under way: %w", id, err))
			}
			return writeResult(terminationLog, result)
		},
	}
	host.addRoot(command)
	command.Flags().StringVar(&id, "operation", "", "the operation's id")
	addTerminationLog(command, &terminationLog)
	utilruntime.Must(command.MarkFlagRequired("operation"))
	return command
}

// run carries out a request. What keeps it from beginning is a result, too.
func run(ctx context.Context, root string, request operation.Request) (*operation.Result, error) {
	agent, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h, err := executor.OpenHost(root)
	if err != nil && executor.MayBeUnderWay(root, request.ID) {
		return nil, fmt.Errorf("operation %s may be under way: %w", request.ID, err)
	}
	if err != nil {
		return &operation.Result{ID: request.ID, Outcome: operation.Failed, Step: operation.StepValidate, Message: err.Error()}, nil
	}
	return h.Run(ctx, request, agent)
}

func newExecute() *cobra.Command {
	return &cobra.Command{
		Use:   "execute",
		Short: "Do what remains of the operation under way: the program of the host unit",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			h, err := executor.OpenHost("/")
			if err != nil {
				return err
			}
			return h.Execute(command.Context())
		},
	}
}

func newPrepare() *cobra.Command {
	var host hostFlags
	command := &cobra.Command{
		Use:   "prepare",
		Short: "Give the kubelet of a unit a --config-dir, for the driver kubelet",
		Long: `Give the kubelet of a unit a --config-dir, which the driver kubelet needs.

It writes a drop-in of the unit, with the unit's command line and that flag. The kubelet has it
when it starts next. Nothing is changed if the kubelet has a --config-dir.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			h, err := executor.OpenHost(host.root)
			if err != nil {
				return err
			}
			path, err := h.Prepare(command.Context())
			if err != nil {
				return err
			}
			fmt.Fprintln(command.OutOrStdout(), cmp.Or(path, "the kubelet has a --config-dir"))
			return nil
		},
	}
	host.addRoot(command)
	return command
}

// newReserve returns the command reserve. formula says how much CPU a node reserves.
func newReserve(formula func(cpus, maxPods int) resource.Quantity) *cobra.Command {
	var host hostFlags
	maxPods := 0
	command := &cobra.Command{
		Use:   "reserve",
		Short: "Reserve CPU for the kubelet and the system, which the policy static needs",
		Long: `Reserve CPU for the kubelet and the system, which the policy static needs.

The amount follows from the number of CPUs and the most pods of the node. It is written to both
reservations, so that the node gives away twice as much. The kubelet has it when it starts next:
then it may reject pods that no longer fit.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if maxPods < 0 {
				return fmt.Errorf("--max-pods is %d, and must not be negative", maxPods)
			}
			h, err := executor.OpenHost(host.root)
			if err != nil {
				return err
			}
			path, amount, err := h.Reserve(command.Context(), operation.Driver(host.driver), formula, maxPods)
			if err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "%s: %s for kubeReserved and for systemReserved\n", path, amount.String())
			return nil
		},
	}
	host.addRoot(command)
	host.addDriver(command)
	command.Flags().IntVar(&maxPods, "max-pods", 0, "the most pods of the node; by default what RKE2's configuration says, what a running kubelet has, or upstream's 110")
	return command
}

func newObserve() *cobra.Command {
	var host hostFlags
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	configz := executor.Configz{TokenFile: account + "token", CAFile: account + "ca.crt"}
	var terminationLog string
	command := &cobra.Command{
		Use:   "observe",
		Short: "Print what is in force, and why a switch would be refused, as JSON",
		Long: `Print what is in force, how the kubelet would start again, and why a switch would be refused,
as JSON.

It changes nothing, and below --host-root it needs no more than to read the host's files and to
connect to systemd's socket. With --configz the running kubelet is asked as well, by the pod's
token, which needs the right to get nodes/configz.

Exit codes:
  0  all is there
  1  something is missing; it prints and writes the rest all the same`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			observed, err := observe(command.Context(), host, configz)
			err = errors.Join(json.NewEncoder(command.OutOrStdout()).Encode(observed), err)
			if terminationLog == "" {
				return err
			}
			message, encodeErr := observed.Encode()
			if encodeErr != nil {
				return errors.Join(err, encodeErr)
			}
			return errors.Join(err, os.WriteFile(terminationLog, message, 0o644))
		},
	}
	host.addRoot(command)
	host.addDriver(command)
	command.Flags().StringVar(&terminationLog, "termination-log", "", fmt.Sprintf("file for the observation, as JSON of at most %d bytes; empty means that it is only printed", operation.MaxSize))
	command.Flags().StringVar(&configz.URL, "configz", "", "the kubelet's configuration, such as https://192.0.2.1:10250/configz")
	return command
}

// observe looks at a host. What keeps it from looking would keep a switch from beginning.
func observe(ctx context.Context, host hostFlags, configz executor.Configz) (operation.Observation, error) {
	h, err := executor.OpenHost(host.root)
	if err != nil {
		observed := operation.Observation{Refused: map[operation.Policy]operation.Refusals{}}
		for _, policy := range operation.Policies() {
			observed.Refused[policy] = operation.Refuse(err.Error())
		}
		return observed, err
	}
	return h.Observe(ctx, operation.Driver(host.driver), configz)
}
