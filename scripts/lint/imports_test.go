// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	core       = "workload.openshift.io/partition"
	ours       = "workload.openshift.io/kubernetes"
	plugin     = "openshift-kube-apiserver/admission/partitioning"
	kubernetes = "k8s.io/kubernetes"
	command    = ours + "/cmd/kubectl-partition"
	images     = ours + "/cmd/images"
	cobra      = "github.com/spf13/cobra"
	operators  = "workload.openshift.io/operators"
	node       = ours + "/node"
)

// border is what a package must not know, as far as imports show it.
type border struct {
	// place is a directory, and all below it unless it is alone.
	place string
	alone bool
	// only are what it may import besides the standard library and itself. Nil means that
	// there is no such list.
	only []string
	// never are what it must not import itself.
	never []string
	// but are what it may import of these.
	but []string
	// notThrough are what it must not import even through others.
	notThrough []string
	why        string
}

// borders are those of docs/dev/architecture.md.
var borders = []border{
	{
		place: "staging/src/" + core,
		// apimachinery brings sigs.k8s.io/json.
		only:       []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/json"},
		notThrough: []string{kubernetes, "k8s.io/client-go", "k8s.io/apiserver", "k8s.io/component-base"},
		why:        "the core knows pods, and no client, informer or host",
	},
	{
		place: "staging/src/" + core + "/partitiontest",
		only:  []string{core, "k8s.io/api", "k8s.io/apimachinery"},
		why:   "core, plugin, kubelet and nodes run its cases alike",
	},
	{
		place: "staging/src/" + core + "/partitiontest/podtest",
		only:  []string{"k8s.io/api", "k8s.io/apimachinery"},
		why:   "tests of the core itself import it",
	},
	{
		place: "pkg/internalpod",
		only:  []string{core, kubernetes + "/pkg/apis/core", "k8s.io/api", "k8s.io/apimachinery"},
		why:   "it shows pods to the core, and knows no rule",
	},
	{
		place: "pkg/kubelet/managed",
		never: []string{
			"k8s.io/client-go/dynamic", "k8s.io/client-go/informers", "k8s.io/client-go/kubernetes", "k8s.io/client-go/listers", "k8s.io/client-go/rest",
			"k8s.io/apiserver", kubernetes + "/plugin", ours + "/openshift-kube-apiserver", ours + "/cmd", ours + "/test",
		},
		why: "the kubelet's shim knows neither clients of the API nor admission",
	},
	{
		place: plugin,
		never: []string{kubernetes + "/pkg/kubelet", ours + "/pkg/kubelet", ours + "/cmd", ours + "/test"},
		why:   "shims import the core, never each other",
	},
	{
		place:      plugin + "/config",
		never:      []string{"k8s.io/client-go", ours + "/" + plugin},
		notThrough: []string{kubernetes, "k8s.io/client-go", "k8s.io/apiserver"},
		why:        "a configuration makes no request",
	},
	{
		place:      plugin + "/activation",
		never:      []string{"k8s.io/apiserver", ours + "/" + plugin + "/gate", ours + "/" + plugin + "/metrics"},
		notThrough: []string{kubernetes},
		why:        "a webhook must be able to use it, and it knows nodes, not pods",
	},
	{
		place:      plugin + "/stored",
		never:      []string{"k8s.io/apiserver", ours + "/" + plugin},
		notThrough: []string{kubernetes},
		why:        "a webhook must be able to use it, and it knows stored pods, whichever types are active",
	},
	{
		place:      plugin + "/gate",
		never:      []string{"k8s.io/apiserver", ours + "/" + plugin},
		notThrough: []string{kubernetes},
		why:        "a webhook must be able to use it, and it asks for active types through an interface",
	},
	{
		place:      plugin + "/metrics",
		never:      []string{"k8s.io/apiserver", "k8s.io/client-go"},
		notThrough: []string{kubernetes},
		why:        "a webhook must be able to use it, and it makes no request",
	},
	{
		place: plugin + "/constraint",
		never: []string{ours + "/" + plugin},
		why:   "what a namespace requires has nothing to do with active types",
	},
	{
		place:      "node",
		never:      []string{ours + "/pkg", ours + "/openshift-kube-apiserver", ours + "/cmd", ours + "/cluster", ours + "/test", operators, cobra},
		notThrough: []string{kubernetes, "k8s.io/client-go"},
		why:        "plugin, companions and their agent stand on it",
	},
	{
		place: "node/kubeletstate",
		never: []string{node},
		why:   "it reads files, independent of its callers",
	},
	{
		place: "node/nodefiles",
		never: []string{node + "/kubeletstate", node + "/readmission", node + "/cri", node + "/kubeletclient", "os"},
		why:   "it is a function of a value: nothing is read from a host, and nothing written",
	},
	{
		place: "node/topology",
		never: []string{core},
		why:   "it reads a host, independent of its callers",
	},
	{
		place: "node/cri",
		never: []string{"k8s.io/api", "k8s.io/client-go"},
		why:   "it connects, whatever is asked",
	},
	{
		place: "node/kubeletclient",
		only:  []string{"k8s.io/api", "sigs.k8s.io/yaml"},
		why:   "it reads two things from the API, independent of its callers",
	},
	{
		place: "node/audit",
		never: []string{node + "/plan", node + "/reported"},
		why:   "it believes only the host, not reports",
	},
	{
		place: "node/plan",
		never: []string{node + "/audit"},
		why:   "it foresees from files and objects, whatever runs now",
	},
	{
		place: "node/reported",
		only:  []string{core, "k8s.io/api", "k8s.io/apimachinery"},
		why:   "it reads objects, wherever they come from",
	},
	{
		place: "node/result",
		only:  []string{"k8s.io/apimachinery"},
		why:   "it says how results begin, whatever is in them",
	},
	{
		place: "node/readmission",
		never: []string{node},
		why:   "it foresees from what it is given, and reads neither hosts nor the API",
	},
	{
		place: "cmd/carry",
		never: []string{core, ours + "/pkg", ours + "/openshift-kube-apiserver", ours + "/cluster", ours + "/test", "k8s.io"},
		why:   "it carries patches, whatever they are about",
	},
	{
		place: "cmd/images",
		never: []string{core, ours + "/pkg", ours + "/openshift-kube-apiserver", ours + "/cluster", ours + "/test", ours + "/cmd/carry", "k8s.io"},
		why:   "it packs binaries, whatever they do",
	},
	{
		place: "cmd/images/rootfs",
		only:  []string{},
		why:   "it knows files, whatever is in them",
	},
	{
		place: "cmd/images/program",
		only:  []string{images + "/internal"},
		why:   "it asks Go binaries, wherever they come from",
	},
	{
		place: "cmd/images/debian",
		never: []string{images + "/oci", images + "/release", images + "/bundle", images + "/sbom", images + "/provenance", images + "/program"},
		why:   "it knows packages, and not what they are for",
	},
	{
		place: "cmd/images/sbom",
		never: []string{images + "/oci", images + "/release", images + "/bundle", images + "/provenance"},
		why:   "it knows a format, and not how an image is made",
	},
	{
		place: "cmd/images/provenance",
		only:  []string{},
		why:   "it knows a format, and not how an image is made",
	},
	{
		place: "cmd/images/release",
		never: []string{images + "/bundle"},
		why:   "it knows a release, and not what else a version consists of",
	},
	{
		place: "cmd/images/bundle",
		never: []string{images + "/oci", images + "/sbom"},
		why:   "it knows what a version consists of, and not how it is made",
	},
	{
		place: "cmd/images/oci",
		never: []string{images + "/debian", images + "/program", images + "/release"},
		why:   "it knows formats and registries, and not what is in an image",
	},
	{
		place: "cmd/kubectl-partition/simulate",
		never: []string{"k8s.io/client-go", "k8s.io/cli-runtime", cobra},
		why:   "it decides about pods, wherever they come from",
	},
	{
		place: "cmd/kubectl-partition/lint",
		never: []string{command + "/render", command + "/plan", command + "/alerts", command + "/status", cobra},
		why:   "manifests, and no flags",
	},
	{
		place: "cmd/kubectl-partition/render",
		never: []string{command + "/lint", command + "/plan", command + "/alerts", "k8s.io/client-go", cobra},
		why:   "a node's configuration, and no flags",
	},
	{
		place: "cmd/kubectl-partition/nodes",
		never: []string{command, node + "/audit", cobra},
		why:   "it reads the API, and decides nothing",
	},
	{
		place: "cmd/kubectl-partition/status",
		never: []string{node + "/audit", node + "/plan", node + "/topology", node + "/kubeletstate", cobra},
		why:   "it sees a cluster through its API",
	},
	{
		place: "cmd/kubectl-partition/gather",
		never: []string{node + "/topology", node + "/kubeletstate", cobra},
		why:   "it sees a cluster through its API, and nodes through pods",
	},
	{
		place: "cmd/kubectl-partition/explain",
		never: []string{node + "/audit", node + "/plan", node + "/topology", node + "/kubeletstate", cobra},
		why:   "it sees a cluster through its API",
	},
	{
		place: "cmd/kubectl-partition/autoscaler",
		never: []string{command, "k8s.io/client-go", cobra},
		why:   "it judges objects, independent of its callers",
	},
	{
		place: "cmd/kubectl-partition/alerts",
		never: []string{command, "k8s.io/client-go", cobra},
		why:   "Prometheus rules, and no flags",
	},
	{
		place: "cmd/kubectl-partition/output",
		never: []string{command, core},
		why:   "it prints, whatever it is",
	},
	{
		place:      "cmd/kubectl-partition/internal/cli",
		never:      []string{kubernetes},
		notThrough: []string{"sigs.k8s.io/controller-runtime"},
		why:        "rules are in the packages that it calls",
	},
	{
		place: "cluster",
		never: []string{ours + "/test", ours + "/pkg", ours + "/openshift-kube-apiserver"},
		why:   "it starts nodes, and does not know what is tested on them",
	},
	{
		place: "cluster/host",
		never: []string{ours + "/cluster/vm"},
		why:   "it does not know whether the host is virtual",
	},
	{
		place: "cluster/image",
		never: []string{ours + "/cluster/host", ours + "/cluster/vm"},
		why:   "images know no cluster",
	},
	{
		place: "cluster/vm",
		never: []string{ours + "/cluster/cmd"},
		why:   "it boots and enters VMs, independent of its callers",
	},
	{
		place: "cluster/poll",
		only:  []string{},
		why:   "it knows time, and not what is waited for",
	},
	{
		place: "cluster/atomicfile",
		only:  []string{},
		why:   "it knows files, whatever is in them",
	},
	{
		place: "cluster/tidy",
		only:  []string{ours + "/cluster/host"},
		why:   "it knows who has a directory and when tests end, and not what they have made",
	},
	{
		place: "cluster/cmd",
		never: []string{"github.com/containerd", "github.com/opencontainers", "golang.org/x/sys", "k8s.io/kubelet"},
		why:   "how a node is started is the business of host and vm",
	},
	{
		place:      "operators",
		never:      []string{kubernetes, ours + "/pkg", ours + "/openshift-kube-apiserver"},
		notThrough: []string{ours + "/test", command},
		why:        "it works on an unpatched cluster, and is in no tree of a release",
	},
	{
		place:      "operators/api",
		only:       []string{operators + "/api", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/component-base", "k8s.io/utils", "sigs.k8s.io/json", "sigs.k8s.io/yaml"},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
		why:        "other programs import it for what they read and write, and get no client with it",
	},
	{
		place: "operators/e2e",
		never: []string{operators, kubernetes},
		but:   []string{operators + "/internal/provider"},
		why:   "it tests what users see, and a provider of machines is one of theirs",
	},
	{
		place: "operators/foreign",
		never: []string{operators + "/companion", operators + "/api", "sigs.k8s.io/controller-runtime/pkg/manager"},
		why:   "it looks for other programs, independent of its callers",
	},
	{
		place:      "operators/alert",
		only:       []string{"github.com/prometheus"},
		notThrough: []string{"k8s.io"},
		why:        "plugin and companions know what an alert is",
	},
	{
		place:      "operators/companion/metrics",
		only:       []string{operators + "/alert", "github.com/prometheus"},
		notThrough: []string{"k8s.io", "sigs.k8s.io"},
		why:        "the plugin renders the alerts on them, without the manager's library",
	},
	{
		place:      "operators/tuning/metrics",
		only:       []string{operators + "/alert", "github.com/prometheus"},
		notThrough: []string{"k8s.io", "sigs.k8s.io"},
		why:        "the plugin renders the alerts on them, without the manager's library",
	},
	{
		place:      "operators/workloadclasses/metrics",
		only:       []string{operators + "/alert", "github.com/prometheus"},
		notThrough: []string{"k8s.io", "sigs.k8s.io"},
		why:        "the plugin renders the alerts on them, without the manager's library",
	},
	{
		place: "operators/definition",
		never: []string{operators},
		why:   "it reads a definition, independent of its callers",
	},
	{
		place: "operators/companion",
		never: []string{operators + "/cmd", operators + "/internal"},
		why:   "it says what a companion is, and not how one is run",
	},
	{
		place: "operators/cpupolicy/controller",
		never: []string{operators + "/cpupolicy/executor", operators + "/cmd"},
		why:   "it knows what a switch is, and not how a node is changed",
	},
	{
		place: "operators/cpupolicy/action",
		never: []string{operators + "/api/cpupolicy/v1alpha1", operators + "/cmd", operators + "/cpupolicy/controller", operators + "/cpupolicy/executor", operators + "/api/nodegroup", operators + "/rollout"},
		why:   "it asks for a policy, and does not know what becomes of it",
	},
	{
		place: "operators/internal/certs",
		never: []string{operators + "/companion", operators + "/cmd"},
		why:   "it keeps certificates, independent of their servers",
	},
	{
		place: "operators/internal/example",
		only: []string{
			operators + "/alert", operators + "/api/config", operators + "/api/nodegroup", operators + "/companion", operators + "/mirror", operators + "/operand",
			operators + "/internal", operators + "/cmd/partition-controller/app", "github.com/prometheus", cobra, "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go",
			"k8s.io/component-base", "sigs.k8s.io/controller-runtime",
		},
		why: "it shows that a companion stands on the ground alone",
	},
	{
		place: "operators/internal/testenv",
		never: []string{operators + "/companion", operators + "/cmd"},
		why:   "it starts a control plane, and does not know what is tested on it",
	},
	{
		place: "operators/nodeclient",
		only:  []string{operators + "/api/nodegroup", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime/pkg/client"},
		why:   "it records who may act on nodes, independent of the actors",
	},
	{
		place: "operators/mirror",
		never: []string{operators},
		why:   "it copies objects, whatever they are",
	},
	{
		place: "operators/nodejob",
		only:  []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/controller-runtime/pkg/client"},
		why:   "it runs Jobs on nodes, whatever they do",
	},
	{
		place: "operators/drain",
		only:  []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kubectl/pkg/drain"},
		why:   "it evicts pods, and does not know why",
	},
	{
		place: "operators/operand",
		never: []string{operators + "/api", operators + "/cmd"},
		why:   "it runs what a companion says, whatever it is for",
	},
	{
		place: "operators/cmd/partition-node",
		never: []string{operators + "/companion"},
		why:   "it sees its own node, and manages nothing",
	},
	{
		place:      "operators/nodepool",
		alone:      true,
		never:      []string{operators + "/cmd", operators + "/companion", operators + "/mirror"},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "os/exec", kubernetes},
		why:        "rules are functions of plain values",
	},
	{
		place:      "operators/hostedconfig",
		alone:      true,
		never:      []string{operators + "/cmd", operators + "/companion", operators + "/mirror"},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "os/exec", kubernetes},
		why:        "rules are functions of plain values",
	},
	{
		place:      "operators/tuning",
		alone:      true,
		never:      []string{operators + "/cmd"},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "os/exec", kubernetes},
		why:        "rules are functions of plain values",
	},
	{
		place: "operators/tuning/controller",
		never: []string{operators + "/cmd", operators + "/tuning/daemon"},
		why:   "it knows what a node gets, and not how TuneD applies it",
	},
	{
		place: "operators/tuning/daemon",
		never: []string{operators + "/companion", operators + "/cmd", operators + "/tuning/controller", operators + "/mirror", operators + "/operand", cobra},
		why:   "it reads the Profile of its node, independent of its writers",
	},
	{
		place:      "operators/manifest",
		never:      []string{operators + "/cmd", operators + "/companion", operators + "/mirror"},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "os/exec", kubernetes},
		why:        "several companions read the same manifests, by the same rules",
	},
	{
		place:      "operators/performance",
		only:       []string{operators + "/api/performance", node + "/nodefiles", core, "k8s.io/apimachinery", "k8s.io/kubelet", "k8s.io/utils"},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "os/exec", kubernetes},
		why:        "rules are functions of plain values",
	},
	{
		place: "operators/rollout",
		never: []string{operators + "/api/cpupolicy", operators + "/cmd", operators + "/cpupolicy"},
		why:   "it carries operations through, whatever they do",
	},
	{
		place:      "operators/cpupolicy",
		alone:      true,
		never:      []string{operators + "/cmd"},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "os/exec", kubernetes},
		why:        "rules are functions of plain values",
	},
	{
		place: "operators/api/cpupolicy/operation",
		only:  []string{operators + "/api/untrusted", "k8s.io/apimachinery", "k8s.io/utils/cpuset", "sigs.k8s.io/json"},
		why:   "controller and agent speak through it, and it does nothing",
	},
	{
		place:      "operators/cpupolicy/agentpod",
		only:       []string{"k8s.io/api", operators + "/api/cpupolicy/operation"},
		notThrough: []string{operators + "/cpupolicy/executor", "k8s.io/client-go"},
		why:        "the controller says what the agent's pod may do, and not how the agent does it",
	},
	{
		place:      "operators/workloadclasses",
		alone:      true,
		never:      []string{operators + "/cmd", operators + "/companion"},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "os/exec", kubernetes},
		why:        "rules are functions of plain values",
	},
	{
		place: "operators/workloadclasses/controller",
		never: []string{operators + "/cmd"},
		why:   "it carries out what the rules decide, and does not know how it is run",
	},
	{
		place: "operators/workloadclasses/inspect",
		never: []string{operators + "/cmd", operators + "/companion", "sigs.k8s.io/controller-runtime", cobra},
		why:   "it asks as any user does",
	},
	{
		place: "operators/cpudriver",
		never: []string{operators},
		why:   "companions import it",
	},
	{
		place: "operators/api/untrusted",
		never: []string{operators},
		why:   "it bounds texts and numbers, whatever they are in",
	},
	{
		place: "operators/cpupolicy/policyclient",
		never: []string{operators + "/cmd", operators + "/companion", "sigs.k8s.io/controller-runtime", cobra},
		why:   "it asks as any user does",
	},
	{
		place: "operators/cpupolicy/console",
		never: []string{operators + "/cmd", operators + "/companion", "sigs.k8s.io/controller-runtime", cobra},
		why:   "it asks as any user does",
	},
	{
		place:      "operators/cpupolicy/executor",
		never:      []string{"k8s.io/api", operators + "/api/cpupolicy/v1alpha1", operators + "/api/nodegroup", operators + "/rollout", cobra},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", kubernetes},
		why:        "while it works, the node may not reach the API, and no step needs it",
	},
	{
		place:      "operators/numaresources",
		alone:      true,
		never:      []string{operators + "/api", operators + "/cmd"},
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "os/exec", kubernetes},
		why:        "rules are functions of plain values",
	},
	{
		place: "operators/numaresources/daemon",
		never: []string{operators + "/api", operators + "/cmd", operators + "/companion", operators + "/internal"},
		why:   "it writes for its own node, and does not know what becomes of that",
	},
	{
		place: "operators/numaresources/controller",
		never: []string{operators + "/numaresources/daemon", operators + "/cmd"},
		why:   "it knows what an exporter reports, and not how",
	},
	{
		place:      "operators/cmd/partition-agent",
		notThrough: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", kubernetes},
		why:        "the agent believes its node, and asks for nothing but its Node",
	},
	{
		place: "test/conformance/images",
		never: []string{core, ours + "/cluster", ours + "/test/conformance/testbed", ours + "/test/conformance/specs", "k8s.io"},
		why:   "it makes images, independent of their users",
	},
	{
		place: "test/conformance/testbed",
		never: []string{ours + "/test/conformance/images", ours + "/test/conformance/specs", ours + "/cmd", kubernetes},
		why:   "it starts a cluster, and does not know what is tested on it",
	},
	{
		place:      "test/conformance/specs",
		never:      []string{core, ours + "/cmd", ours + "/test/conformance/images", ours + "/test/conformance/testbed"},
		notThrough: []string{"k8s.io/client-go"},
		why:        "it runs upstream's specs, whatever cluster they test",
	},
	{
		place: "test/e2e",
		never: []string{ours + "/pkg", ours + "/openshift-kube-apiserver", kubernetes},
		why:   "it tests what users see",
	},
	{
		place: "test/e2e/internal/fixture",
		never: []string{ours + "/cluster/host", ours + "/cluster/vm"},
		why:   "it builds pods and awaits them, whatever runs them",
	},
	{
		place: "test/e2e/internal/cpudriver",
		never: []string{core, ours, "k8s.io/api"},
		why:   "it sets cpusets as a DRA driver does, whatever is tested with it",
	},
	{
		place: "test/e2e/internal/noise",
		never: []string{core, ours + "/cluster", ours + "/test", "k8s.io"},
		why:   "it counts, independent of the load's source",
	},
	{
		place: "test/e2e/internal/soak",
		never: []string{core, ours + "/test", "k8s.io"},
		why:   "it counts rounds and growth, independent of their execution",
	},
	{
		place: "test/classes",
		never: []string{core, ours + "/cluster", ours + "/cmd", ours + "/pkg", ours + "/openshift-kube-apiserver", operators + "/workloadclasses/controller"},
		why:   "it calculates with rules and plugins, and asks no cluster",
	},
	{
		place: "test/workloadpartitioning",
		never: []string{ours + "/cluster", ours + "/cmd", ours + "/pkg", ours + "/openshift-kube-apiserver"},
		why:   "it tests any cluster, independent of its origin",
	},
}

// row is a row of the table in docs/dev/architecture.md, and its first column.
var row = regexp.MustCompile("(?m)^\\| (`[^|]*) \\|.*\\|.*\\|$")

func TestEachPlaceOfTheTableHasItsBorder(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/dev/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := row.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 30 {
		t.Errorf("docs/dev/architecture.md has a table of %d rows", len(rows))
	}
	for _, columns := range rows {
		for place := range strings.SplitSeq(columns[1], ", ") {
			place = strings.Trim(place, "`")
			if place == "patches" { // no Go
				continue
			}
			end := strings.TrimPrefix(place, "...")
			if !slices.ContainsFunc(borders, func(b border) bool { return b.place == place || end != place && strings.HasSuffix(b.place, end) }) {
				t.Errorf("%s stands in docs/dev/architecture.md, and borders has nothing of it", place)
			}
		}
	}
}

// TestPackagesKnowNoMoreThanTheyMay enforces the table of docs/dev/architecture.md.
func TestPackagesKnowNoMoreThanTheyMay(t *testing.T) {
	for _, border := range borders {
		t.Run(border.place, func(t *testing.T) {
			dir := filepath.Join(root, filepath.FromSlash(border.place))
			self := importPath(t, dir)
			for path, file := range importsOf(t, dir, border.alone) {
				switch {
				case within(path, []string{self}), within(path, border.but):
				case border.only != nil && !within(path, border.only):
					t.Errorf("%s imports %s, and may import %s: %s", file, path, strings.Join(border.only, ", "), border.why)
				case within(path, border.never):
					t.Errorf("%s imports %s: %s", file, path, border.why)
				}
			}
			if border.notThrough == nil {
				return
			}
			of := "./..."
			if border.alone {
				of = "."
			}
			list := exec.Command("go", "list", "-deps", of)
			list.Dir, list.Stderr = dir, os.Stderr
			packages, err := list.Output()
			if err != nil {
				t.Fatalf("go list in %s: %v", border.place, err)
			}
			for path := range strings.FieldsSeq(string(packages)) {
				if within(path, border.notThrough) {
					t.Errorf("it imports %s, itself or through others, and go mod why %[1]s tells how: %[2]s", path, border.why)
				}
			}
		})
	}
}

// within reports whether an import path is one of these, or below one.
func within(path string, of []string) bool {
	return slices.ContainsFunc(of, func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") })
}

var moduleLine = regexp.MustCompile(`(?m)^module (\S+)$`)

// importPath is what the package of a directory is imported as: the path of the module around it, and its own there.
func importPath(t *testing.T, dir string) string {
	t.Helper()
	for around := dir; ; around = filepath.Dir(around) {
		text, err := os.ReadFile(filepath.Join(around, "go.mod"))
		if errors.Is(err, fs.ErrNotExist) && around != root {
			continue
		}
		below, relErr := filepath.Rel(around, dir)
		module := moduleLine.FindSubmatch(text)
		if err := errors.Join(err, relErr); err != nil || module == nil {
			t.Fatalf("no go.mod says the path of %s: %v", dir, err)
		}
		return filepath.ToSlash(filepath.Join(string(module[1]), below))
	}
}

// importsOf returns what the Go files of a directory, tests included, and unless it is alone of all
// below it, import besides the standard library, each with a file that does.
func importsOf(t *testing.T, dir string, alone bool) map[string]string {
	t.Helper()
	imports, files := map[string]string{}, 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if alone && err == nil && entry.IsDir() && path != dir {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
				imports[name] = path
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Errorf("%s has no Go files; is it somewhere else now?", dir)
	}
	return imports
}
