// SPDX-License-Identifier: Apache-2.0

// Command partition-node has the daemon of the companion example.
package main

import (
	"os"

	"workload.openshift.io/operators/internal/example/daemon"
	"workload.openshift.io/operators/internal/nodeprogram"
)

func main() {
	os.Exit(nodeprogram.Run(nodeprogram.NewCommand("partition-node", "Run the daemon of the companion example", daemon.NewCommand())))
}
