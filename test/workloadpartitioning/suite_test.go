// SPDX-License-Identifier: Apache-2.0

package workloadpartitioning_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"workload.openshift.io/kubernetes/test/workloadpartitioning"

	// What upstream's own binary reconfigures the framework with.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	workloadpartitioning.RegisterFlags(flag.CommandLine)
	flag.Parse()
	if framework.TestContext.KubeConfig == "" && os.Getenv("KUBECONFIG") == "" {
		fmt.Println("SKIPPED: the specs need a cluster; name one with -kubeconfig or KUBECONFIG, as make specs does")
		return
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

// The specs of the package hold on the cluster of -kubeconfig.
func TestSpecs(t *testing.T) {
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "Workload partitioning", suite, reporter)
}
