// SPDX-License-Identifier: Apache-2.0

// Command topo-aware-scheduler is kube-scheduler with the plugin NodeResourceTopologyMatch.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // the plugin's arguments
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(noderesourcetopology.Name, noderesourcetopology.New))))
}
