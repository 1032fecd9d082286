// SPDX-License-Identifier: Apache-2.0

// Package project says what carry needs to know of the project whose series it keeps:
// this file has every name, and checkout.go knows a checkout on disk. To keep the series
// of another project, change this file. The package must not know what is done with the
// names: it reads no patch and runs no command.
package project

import (
	"path/filepath"
	"regexp"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
)

// The Go modules: upstream's, and the two of this project that a tree lists.
const (
	UpstreamModule = "k8s.io/kubernetes"
	RootModule     = "workload.openshift.io/kubernetes"
	CoreModule     = "workload.openshift.io/partition"
)

// The directories and files, relative to the checkout.
var (
	// PatchesDir has the common patches, SeriesFile their order, and BudgetFile the most
	// that the series may be. DroppedName is a file next to overrides that names
	// the patches that their releases do not need, since upstream has the change.
	PatchesDir  = "patches"
	SeriesFile  = filepath.Join(PatchesDir, "series")
	BudgetFile  = filepath.Join(PatchesDir, "budget")
	DroppedName = "dropped"
	// RevertsFile says which code a fork carries for the same purpose. It is removed before the
	// series is applied.
	RevertsFile = filepath.Join(PatchesDir, "openshift", "reverts")
	// ReleasesDir has a directory of pins for each known release, and in it FailingName,
	// upstream's own tests that do not count.
	ReleasesDir = filepath.Join("build", "releases")
	FailingName = "failing"
	// OutputDir has what can be made again, the trees among it.
	OutputDir = "_output"
	// UnneededModules are the staging modules of which no binary has a package, and that no
	// other module requires. A release can do without them, and without no other.
	UnneededModules = []string{"k8s.io/sample-apiserver", "k8s.io/sample-cli-plugin", "k8s.io/sample-controller"}
	// ToolDir is carry itself.
	ToolDir = filepath.Join("cmd", "carry")
	// ModuleDirs are those of the modules that a tree lists.
	ModuleDirs = map[string]string{RootModule: ".", CoreModule: filepath.Join("staging", "src", CoreModule)}
	// LinkedDirs are those of the root module whose packages a tree may import.
	LinkedDirs = []string{"openshift-kube-apiserver", "partitiontest", "pkg", "testdata"}
	// TestDirs are those of them, at any depth, that only tests use.
	TestDirs = []string{"partitiontest", "testdata"}
	// StagingDir is where upstream, and a tree that is given away, has staging modules.
	StagingDir = filepath.Join("staging", "src")
	// RaisedDirs are those of the modules that require upstream's newest, the core first.
	RaisedDirs = []string{
		ModuleDirs[CoreModule], ".", "node", "cluster", filepath.Join("cmd", "kubectl-partition"), filepath.Join("cmd", "kubectl-partition", "alerts", "test"),
		filepath.Join("test", "conformance"), filepath.Join("test", "e2e"), filepath.Join("test", "workloadpartitioning"), "operators", filepath.Join("operators", "api"),
		filepath.Join("operators", "chart"), "scheduler",
	}
	// ReaderDirs are those of the modules whose programs read Go: they must be built with a Go that knows what the
	// others are in.
	ReaderDirs = []string{ToolDir, filepath.Join("build", "lint"), filepath.Join("build", "controller-gen")}
)

// PluginModule is a module of upstream that has a series of its own. It is materialised in PluginDir; only what is below
// PluginKept is, without PluginLeftOut, since the rest has dependencies that nothing here needs. PluginPins has its version, and PluginPatches
// its series and budget; in both, the directory of a minor version of Kubernetes comes first. Of its package test/util, which imports all of
// the rest, PluginFake has what the kept tests use.
const PluginModule = "sigs.k8s.io/scheduler-plugins"

// See PluginModule.
var (
	PluginPins    = filepath.Join("build", "scheduler-plugins")
	PluginPatches = filepath.Join(PatchesDir, "scheduler-plugins")
	PluginDir     = filepath.Join(OutputDir, "scheduler-plugins")
	PluginFake    = filepath.Join("scheduler", "internal", "fakeclient")
	PluginLeftOut = filepath.Join("apis", "config", "scheme", "scheme_test.go")
	PluginKept    = []string{"apis/config", "apis/scheduling", "pkg/noderesourcetopology", "pkg/util"}
)

// Identity makes and PatchDate dates every patch, so that the same series gives the same
// commits. Authors are those of this project; its own history names them.
var (
	Identity  = git.Identity{Name: "workload partitioning", Email: "carry@workload.openshift.io"}
	PatchDate = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// SupportMonths is how long upstream supports a minor version after its first release: twelve
// months and two of maintenance, by KEP-1498 (Kubernetes Yearly Support Period). The page of
// patch releases of upstream's site names a day for each, which lies in the month that this
// gives.
const SupportMonths = 14

// How the subjects of commits start in a fork: what it keeps, what it makes again with each
// rebase, and what it takes back.
const (
	CarryPrefix  = "UPSTREAM: <carry>: "
	DropPrefix   = "UPSTREAM: <drop>: "
	RevertPrefix = "UPSTREAM: revert: <carry>: "
)

// VersionSuffix stands between a release and a tree's commit in a version.
const VersionSuffix = "+wp."

// Binaries are what is built, in the order of their use. logRunner starts the others in upstream's
// images.
var Binaries = []string{"kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kube-proxy", logRunner}

const logRunner = "kube-log-runner"

// OtherBinaries are kubeadm, which has no hook, and what upstream's end-to-end tests consist of, with what
// runs in the images that they use. They are built only on request.
var OtherBinaries = []string{"kubeadm", "e2e.test", "e2e_node.test", "agnhost", "nonewprivs", "sample-apiserver"}

// SourceDir is the directory of a binary's source in a tree, as upstream's make takes it.
func SourceDir(binary string) string {
	switch binary {
	case logRunner:
		return "staging/src/k8s.io/component-base/logs/" + binary
	case "e2e.test":
		return "test/e2e/" + binary
	case "e2e_node.test":
		return "test/e2e_node/" + binary
	case "agnhost", "nonewprivs":
		return "test/images/" + binary
	case "sample-apiserver":
		return "staging/src/k8s.io/" + binary
	}
	return "cmd/" + binary
}

// HookedCommands are those of them that have hooks.
var HookedCommands = []string{"kubelet", "kube-apiserver"}

// StaticBinary is the one of them that is linked statically, whatever upstream does.
const StaticBinary = "kubelet"

// The words of the budget.
const (
	BudgetPatches       = "patches"
	BudgetUpstreamFiles = "upstream-files"
	BudgetHunks         = "hunks"
	BudgetLinesAdded    = "lines-added"
	BudgetLinesRemoved  = "lines-removed"
	BudgetOverrideFiles = "override-files"
)

// What a hook is. A change of any of these is a change of what a hook may be.
var (
	// HookWords are of the packages that hooks call: each hunk has one, or HookImport.
	HookWords  = []string{"managed", "partitioning"}
	HookImport = regexp.MustCompile(`"workload\.openshift\.io/`)
	// HookErrorCheck matches the one condition that a hook may have: the check of an error
	// that a call of ours returns.
	HookErrorCheck = regexp.MustCompile(`^\s*if (\w+(, \w+)* :?= )?managed\.`)
)

const (
	MaxAddedPerFile = 8
	MaxSubject      = 72
)
