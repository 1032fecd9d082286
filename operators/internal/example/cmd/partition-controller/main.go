// SPDX-License-Identifier: Apache-2.0

// Command partition-controller runs the companion example, and none of those that users get.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	ctrl "sigs.k8s.io/controller-runtime"
	"workload.openshift.io/operators/cmd/partition-controller/app"
	"workload.openshift.io/operators/internal/example"
)

func main() {
	command := app.NewCommand(&example.Companion{})
	command.SetContext(ctrl.SetupSignalHandler())
	os.Exit(cli.Run(command))
}
