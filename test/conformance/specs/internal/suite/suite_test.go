// SPDX-License-Identifier: Apache-2.0

// Package suite stands for upstream's end-to-end tests in a test: it has specs that end in every way.
package suite

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// marks is a directory with a file for each spec that has run.
var marks = flag.String("marks", "", "")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

func TestSuite(t *testing.T) {
	if flag.Lookup("ginkgo.json-report").Value.String() == "" {
		t.Skip("the tests of package specs run it")
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Kubernetes e2e suite")
}

// ran notes that a spec has run.
func ran(name string) {
	file, err := os.OpenFile(filepath.Join(*marks, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	_, err = file.WriteString("x")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(file.Close()).To(gomega.Succeed())
}

// The first set-up fails if there is a file not-set-up.
var _ = ginkgo.BeforeSuite(func() {
	gomega.Expect(os.Remove(filepath.Join(*marks, "not-set-up"))).NotTo(gomega.Succeed(), "the cluster is slow")
})

var _ = ginkgo.Describe("[sig-test] Things (all of them)", func() {
	ginkgo.It("should pass [Conformance]", func() { ran("passes") })
	ginkgo.It("should pass [Conformance] too", func() { ran("passes-too") })
	ginkgo.It("should fail [Conformance]", func() {
		ran("fails")
		ginkgo.Fail("it is broken\nin two lines")
	})
	ginkgo.It("should skip itself [Conformance]", func() { ginkgo.Skip("there is no such thing here") })
	ginkgo.It("should crash [Conformance]", func() {
		ran("crashes")
		os.Exit(3)
	})
	ginkgo.It("should wait [Conformance]", func() {
		ran("waits")
		if _, err := os.Stat(filepath.Join(*marks, "forever")); err == nil {
			time.Sleep(time.Hour)
		}
	})
	ginkgo.It("should run alone [Serial] [Conformance]", ginkgo.Serial, func() { ran("alone") })
	ginkgo.It("should not be asked for", func() { ran("not-asked-for") })
})
