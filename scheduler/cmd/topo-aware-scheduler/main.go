// SPDX-License-Identifier: Apache-2.0

// Command topo-aware-scheduler is kube-scheduler with the plugin NodeResourceTopologyMatch, which places pods where a kubelet's
// topology manager will admit them.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // the plugin's arguments

	"workload.openshift.io/scheduler/ledger"
	"workload.openshift.io/scheduler/plugin"
)

// garbage is how much new memory, in percent of what is in use, lets the program look for garbage. Twice Go's own value makes up for what the
// plugin costs. With 1,000 nodes of four zones it took 224 MiB at most, and 177 with Go's own.
const garbage = 200

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	go endInTime()
	os.Exit(cli.Run(command()))
}

func command() *cobra.Command {
	account := ledger.New(false)
	cmd := app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.Factory(account)))
	cmd.Use = "topo-aware-scheduler"
	cmd.Flags().Var((*unknownNodes)(&account.AllowUnknown), "unknown-nodes",
		"What becomes of pods that need alignment on nodes that have not reported their NUMA nodes, not for 15 minutes, or not how their kubelet runs: Filter or Allow.")
	return cmd
}

// unknownNodes is the flag of that name.
type unknownNodes bool

func (u *unknownNodes) String() string {
	if *u {
		return "Allow"
	}
	return "Filter"
}

func (u *unknownNodes) Set(value string) error {
	switch value {
	case "Filter", "Allow":
		*u = value == "Allow"
		return nil
	}
	return fmt.Errorf("%q is neither Filter nor Allow", value)
}

func (*unknownNodes) Type() string { return "string" }

// endLimit is how long the scheduler may take to end: while kube-apiserver is away, some of what it does waits for that for minutes.
const endLimit = 4 * time.Second

// endInTime ends the program soon after SIGTERM, whatever it waits for. A lease that it has runs out then.
func endInTime() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
	time.Sleep(endLimit)
	fmt.Fprintln(os.Stderr, "topo-aware-scheduler: still waiting for the cluster, ending without it")
	os.Exit(1)
}
