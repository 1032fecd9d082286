// SPDX-License-Identifier: Apache-2.0

// Command partition-controller runs the cluster side of companions: their controllers and webhooks.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	ctrl "sigs.k8s.io/controller-runtime"
	"workload.openshift.io/operators/cmd/partition-controller/app"
	cpupolicy "workload.openshift.io/operators/cpupolicy/controller"
	hostedconfig "workload.openshift.io/operators/hostedconfig/controller"
	nodepool "workload.openshift.io/operators/nodepool/controller"
	numaresources "workload.openshift.io/operators/numaresources/controller"
	tuning "workload.openshift.io/operators/tuning/controller"
	workloadclasses "workload.openshift.io/operators/workloadclasses/controller"
)

func main() {
	command := app.NewCommand(
		&cpupolicy.Companion{},
		&nodepool.Companion{},
		&hostedconfig.Companion{},
		&workloadclasses.Companion{},
		&tuning.Companion{},
		&numaresources.Companion{},
	)
	command.SetContext(ctrl.SetupSignalHandler())
	os.Exit(cli.Run(command))
}
