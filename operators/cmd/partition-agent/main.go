// SPDX-License-Identifier: Apache-2.0

// Command partition-agent is the node's side of companions of a partitioned cluster.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"workload.openshift.io/operators/internal/nodeprogram"
)

func main() { os.Exit(nodeprogram.Run(newCommand())) }

func newCommand() *cobra.Command {
	return nodeprogram.NewCommand("partition-agent", "Do on a node what companions of a partitioned cluster ask for", newCPUPolicy())
}
