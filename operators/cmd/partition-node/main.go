// SPDX-License-Identifier: Apache-2.0

// Command partition-node has the daemons that companions run on nodes. Each writes to the API what it sees of its own node,
// and an admission policy binds what it may write to the node in its token. What changes a node in one step, without the
// API, is partition-agent.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"workload.openshift.io/operators/internal/nodeprogram"
)

func main() { os.Exit(nodeprogram.Run(newCommand())) }

func newCommand() *cobra.Command {
	return nodeprogram.NewCommand("partition-node", "Run the daemon of a companion on its node", newTunedCommand(), newTunedAtBootCommand(), newTopologyCommand())
}
