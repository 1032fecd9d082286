/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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
