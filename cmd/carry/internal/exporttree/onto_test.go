// SPDX-License-Identifier: Apache-2.0

package exporttree

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

// The files of upstream that a fork has hooks in, each much shorter than upstream's own.
var upstreamFiles = map[string]string{
	"pkg/kubelet/kubelet_node_status.go": `package kubelet

import (
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
)

func (kl *Kubelet) register(node, existing *Node) bool {
	update := kl.labels(node, existing)
	update = kl.hugePages(node, existing) || update
	if update {
		kl.patch(events.Patched)
	}
	return true
}

// hugePages adds the capacity for each size.
func (kl *Kubelet) hugePages(node, existing *Node) bool {
	return nodestatus.HugePages(node, existing)
}
`,
	"pkg/kubelet/cm/cpumanager/policy_static.go": `package cpumanager

import (
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

func (p *policy) validate(s State) error {
	if s.Default().IsEmpty() {
		s.SetDefault(p.all)
		return nil
	}

	// 1. Reserved CPUs are among the default ones.
	if !p.reserved.In(s.Default()) {
		return metrics.Failed("reserved")
	}

	// 2. The CPUs are those of the host.
	known := s.Known()
	if !known.Equals(p.all) {
		return metrics.Failed("known",
			p.all.String(), known.String())

	}

	return nil
}

// takeAll is upstream's, with a name that the fork's hunks have, too.
func (p *policy) takeAll(availableCPUs State) State { return availableCPUs }
`,
	"pkg/kubelet/cm/cpumanager/policy_static_test.go": `package cpumanager

func tests() []test {
	return []test{
		{name: "empty"},
	}
}
`,
	"pkg/kubelet/kuberuntime/kuberuntime_container.go": `package kuberuntime

func statuses(ids []string) (all []*status) {
	all = []*status{}
	for _, id := range ids {
		found := convert(id)
		all = append(all, found)
	}
	return all
}

type status struct{ CPU *int }

func convert(id string) *status { return &status{} }
`,
	"pkg/kubelet/cadvisor/cadvisor.go": "package cadvisor\n\nfunc Capacity() string { return \"\" }\n",
	"pkg/kubelet/cm/types.go": `package cm

type Config struct {
	Name string
}
`,
	"pkg/apis/core/types.go": `package core

type Container struct {
	Requests, Limits string
}

type PodSpec struct {
	InitContainers, Containers []Container
}

type Pod struct {
	Spec PodSpec
}

type PodQOSClass string

const PodQOSGuaranteed PodQOSClass = "Guaranteed"
`,
	"pkg/apis/core/helper/qos/qos.go": `package qos

import "k8s.io/kubernetes/pkg/apis/core"

func ComputePodQOS(pod *core.Pod) core.PodQOSClass {
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if c.Requests != c.Limits {
			return "Burstable"
		}
	}
	return core.PodQOSGuaranteed
}
`,
}

// mixedCPUs is the package of a plugin that stays, and calls one that goes.
const mixedCPUs = "openshift-kube-apiserver/admission/autoscaling/mixedcpus"

// forked are the same files in a fork: with hooks of this feature, and with some of others.
var forked = map[string]string{
	"pkg/kubelet/kubelet_node_status.go": `package kubelet

import (
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/managed"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
	"k8s.io/kubernetes/pkg/kubelet/sharedcpus"
)

func (kl *Kubelet) register(node, existing *Node) bool {
	update := kl.labels(node, existing)
	update = kl.hugePages(node, existing) || update
	if managed.IsEnabled() {
		update = kl.addManagementNodeCapacity(existing) || update
	}
	update = kl.reconcileSharedCPUs(existing) || update
	if update {
		kl.patch(events.Patched)
	}
	return true
}

// addManagementNodeCapacity adds the cores.
func (kl *Kubelet) addManagementNodeCapacity(existing *Node) bool {
	existing.Set(managed.GenerateResourceName("management"), cadvisor.Capacity())
	return true
}

// reconcileSharedCPUs adds what is shared.
func (kl *Kubelet) reconcileSharedCPUs(existing *Node) bool {
	existing.Set(sharedcpus.Name())
	return true
}

// hugePages adds the capacity for each size.
func (kl *Kubelet) hugePages(node, existing *Node) bool {
	return nodestatus.HugePages(node, existing)
}
`,
	"pkg/kubelet/cm/cpumanager/policy_static.go": `package cpumanager

import (
	"k8s.io/kubernetes/pkg/kubelet/managed"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

func (p *policy) validate(s State) error {
	if s.Default().IsEmpty() {
		s.SetDefault(p.all)
		if managed.IsEnabled() {
			s.SetDefault(p.all.Without(p.reserved))
		}
		return nil
	}

	// 1. Reserved CPUs are among the default ones.
	// This is for nodes without the feature.
	if !managed.IsEnabled() && !p.reserved.In(s.Default()) {
		return metrics.Failed("reserved")
	}

	// 2. The CPUs are those of the host.
	known := s.Known()
	availableCPUs := p.all

	// The feature takes the reserved ones out of the default ones.
	if managed.IsEnabled() {
		availableCPUs = availableCPUs.Without(p.reserved)
	}

	if !known.Equals(availableCPUs) {
		return metrics.Failed("known",
			availableCPUs.String(), known.String())
	}

	return nil
}

// takeAll is upstream's, with a name that the fork's hunks have, too.
func (p *policy) takeAll(availableCPUs State) State { return availableCPUs }
`,
	"pkg/kubelet/cm/cpumanager/policy_static_test.go": `package cpumanager

func tests() []test {
	return []test{
		{name: "empty"},
		{
			name:                "reserved",
			managementPartition: true,
		},
	}
}
`,
	"pkg/kubelet/kuberuntime/kuberuntime_container.go": `package kuberuntime

import "k8s.io/kubernetes/pkg/kubelet/managed"

func statuses(ids []string) (all []*status) {
	isManagedPod := managed.IsManagedPodFromRuntimeService(ids)

	all = []*status{}
	for _, id := range ids {
		found := convert(id)
		if isManagedPod && found.CPU != nil { // It has cores instead.
			found.CPU = nil
		}
		all = append(all, found)
	}
	return all
}

type status struct{ CPU *int }

func convert(id string) *status { return &status{} }
`,
	"pkg/kubelet/cm/types.go": `package cm

type Config struct {
	Name string
	// NoLoadBalancing is for another feature.
	NoLoadBalancing bool
}
`,
	"pkg/kubelet/managed/managed.go":                                          "package managed\n\nconst file = \"/etc/kubernetes/openshift-workload-pinning\"\n",
	"pkg/kubelet/sharedcpus/sharedcpus.go":                                    "package sharedcpus\n",
	"openshift-kube-apiserver/admission/autoscaling/managednode/admission.go": "package managednode\n",
	"openshift-kube-apiserver/admission/autoscaling/managementcpusoverride/admission.go": `package managementcpusoverride

import "k8s.io/kubernetes/pkg/apis/core"

func IsGuaranteed(containers []core.Container) bool { return len(containers) > 0 }
`,
	mixedCPUs + "/admission.go": `package mixedcpus

import (
	"errors"

	"k8s.io/kubernetes/openshift-kube-apiserver/admission/autoscaling/managementcpusoverride"
	coreapi "k8s.io/kubernetes/pkg/apis/core"
)

func admit(pod *coreapi.Pod) error {
	if !managementcpusoverride.IsGuaranteed(pod.Spec.Containers) {
		return errors.New("the pod is not Guaranteed")
	}
	return nil
}
`,
	"openshift-kube-apiserver/admission/admissionenablement/register.go": `package admissionenablement

import (
	"k8s.io/kubernetes/openshift-kube-apiserver/admission/autoscaling/managednode"
	"k8s.io/kubernetes/openshift-kube-apiserver/admission/autoscaling/managementcpusoverride"
	"k8s.io/kubernetes/openshift-kube-apiserver/admission/autoscaling/mixedcpus"
)

func Register(plugins *Plugins) {
	managementcpusoverride.Register(plugins)
	managednode.Register(plugins)
	mixedcpus.Register(plugins)
}

var before = []string{
	"autoscaling.openshift.io/ClusterResourceOverride",
	managementcpusoverride.PluginName, // "autoscaling.openshift.io/ManagementCPUsOverride"
	managednode.PluginName,            // "autoscaling.openshift.io/ManagedNode"
	mixedcpus.PluginName,              // "autoscaling.openshift.io/MixedCPUs"
}
`,
	"openshift-kube-apiserver/openshiftkubeapiserver/patch.go": `package openshiftkubeapiserver

import (
	configclient "github.com/openshift/client-go/config/clientset/versioned"
	configv1informer "github.com/openshift/client-go/config/informers/externalversions"
	"k8s.io/kubernetes/openshift-kube-apiserver/admission/autoscaling/managednode"
	"k8s.io/kubernetes/openshift-kube-apiserver/admission/autoscaling/managementcpusoverride"
	"k8s.io/kubernetes/openshift-kube-apiserver/admission/scheduler/nodeenv"
)

func Patch(informers *informers) []Initializer {
	return []Initializer{
		nodeenv.NewInitializer(),
		managementcpusoverride.NewInitializer(informers.getOpenshiftInfraInformers().Config()),
		managednode.NewInitializer(informers.getOpenshiftInfraInformers().Config()),
	}
}

func newInformers(config *Config) (*informers, error) {
	userClient, err := NewForConfig(config)
	if err != nil {
		return nil, err
	}
	configClient, err := configclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &informers{
		UserInformers:            New(userClient),
		OpenshiftConfigInformers: configv1informer.New(configClient),
	}, nil
}

type informers struct {
	UserInformers            Factory
	OpenshiftConfigInformers configv1informer.Factory
}

func (i *informers) getOpenshiftInfraInformers() configv1informer.Factory {
	return i.OpenshiftConfigInformers
}
`,
}

// keptByFork are forked files as they must be when this feature of the fork is out of them,
// and the series in.
var keptByFork = map[string]string{
	"pkg/kubelet/kubelet_node_status.go": `package kubelet

import (
	"workload.openshift.io/kubernetes/pkg/kubelet/managed"

	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
	"k8s.io/kubernetes/pkg/kubelet/sharedcpus"
)

func (kl *Kubelet) register(node, existing *Node) bool {
	update := kl.labels(node, existing)
	update = kl.hugePages(node, existing) || update
	update = kl.reconcileSharedCPUs(existing) || update
	managed.Cores(existing)
	if update {
		kl.patch(events.Patched)
	}
	return true
}

// reconcileSharedCPUs adds what is shared.
func (kl *Kubelet) reconcileSharedCPUs(existing *Node) bool {
	existing.Set(sharedcpus.Name())
	return true
}

// hugePages adds the capacity for each size.
func (kl *Kubelet) hugePages(node, existing *Node) bool {
	return nodestatus.HugePages(node, existing)
}
`,
	"pkg/kubelet/cm/cpumanager/policy_static.go":       upstreamFiles["pkg/kubelet/cm/cpumanager/policy_static.go"],
	"pkg/kubelet/cm/cpumanager/policy_static_test.go":  upstreamFiles["pkg/kubelet/cm/cpumanager/policy_static_test.go"],
	"pkg/kubelet/kuberuntime/kuberuntime_container.go": upstreamFiles["pkg/kubelet/kuberuntime/kuberuntime_container.go"],
	"pkg/kubelet/cm/types.go":                          forked["pkg/kubelet/cm/types.go"],
	"pkg/kubelet/sharedcpus/sharedcpus.go":             forked["pkg/kubelet/sharedcpus/sharedcpus.go"],
	mixedCPUs + "/admission.go": `package mixedcpus

import (
	"errors"

	coreapi "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper/qos"
)

func admit(pod *coreapi.Pod) error {
	if !(qos.ComputePodQOS(&coreapi.Pod{Spec: coreapi.PodSpec{Containers: pod.Spec.Containers}}) == coreapi.PodQOSGuaranteed) {
		return errors.New("the pod is not Guaranteed")
	}
	return nil
}
`,
	"openshift-kube-apiserver/admission/admissionenablement/register.go": `package admissionenablement

import (
	"k8s.io/kubernetes/openshift-kube-apiserver/admission/autoscaling/mixedcpus"
)

func Register(plugins *Plugins) {
	mixedcpus.Register(plugins)
}

var before = []string{
	"autoscaling.openshift.io/ClusterResourceOverride",
	mixedcpus.PluginName, // "autoscaling.openshift.io/MixedCPUs"
}
`,
	"openshift-kube-apiserver/openshiftkubeapiserver/patch.go": `package openshiftkubeapiserver

import (
	"k8s.io/kubernetes/openshift-kube-apiserver/admission/scheduler/nodeenv"
)

func Patch(informers *informers) []Initializer {
	return []Initializer{
		nodeenv.NewInitializer(),
	}
}

func newInformers(config *Config) (*informers, error) {
	userClient, err := NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &informers{
		UserInformers: New(userClient),
	}, nil
}

type informers struct {
	UserInformers Factory
}
`,
}

// withFork makes a checkout of this project and one of a fork of Kubernetes, both with the
// list of reverts as it is.
func withFork(t *testing.T) (treetest.Checkout, repo) {
	t.Helper()
	c := withTwoHooks(t, upstreamFiles)
	list, err := os.ReadFile(filepath.Join("..", "..", "..", "..", project.RevertsFile))
	c.Must(err)
	c.Write(project.RevertsFile, string(list))
	r := repo{c, git.Repo{Dir: t.TempDir()}}
	r.run("clone", "-q", c.Project.Path(treetest.Root), ".")
	r.run("checkout", "-q", "-b", "master", treetest.Release)
	r.commit("UPSTREAM: <carry>: management, mixed CPUs and load balancing", forked)
	return c, r
}

func (r repo) commit(subject string, files map[string]string) {
	r.Helper()
	for path, content := range files {
		r.write(path, content)
	}
	r.run("add", "--all")
	r.run("commit", "-q", "-m", subject)
}

func TestExportOntoAFork(t *testing.T) {
	c, fork := withFork(t)
	// One of the series goes where the fork has a hook of another feature.
	const hooked = "\tupdate = kl.hugePages(node, existing) || update"
	c.Must(c.Tree.Update(t.Context()))
	c.Edit("kubelet/kubelet_node_status.go", "import (", "import (\n\t\"workload.openshift.io/kubernetes/pkg/kubelet/managed\"\n")
	c.Hook("kubelet/kubelet_node_status.go", hooked, hooked+"\n\tmanaged.Cores(existing)", "kubelet: report cores")
	c.Must(c.Tree.Export(t.Context()))
	// Another hook of the fork is near where one of the series goes: a three-way merge.
	fork.commit("UPSTREAM: <carry>: more of b", map[string]string{"pkg/b.go": strings.Replace(treetest.Numbered("b"), "ba\n", "ba2\n", 1)})
	base, before := fork.run("rev-parse", "HEAD"), contents(c, fork.Dir)
	to := filepath.Join(t.TempDir(), "fork")
	c.Must(Export(t.Context(), c.Tree, Options{To: to, Onto: fork.Dir}))
	if after := contents(c, fork.Dir); after != before {
		t.Error("the checkout has changed")
	}
	r := repo{c, git.Repo{Dir: to}}
	want := []string{
		"UPSTREAM: revert: <carry>: management support to kubelet",
		"UPSTREAM: revert: <carry>: the admission plugins ManagementCPUsOverride and ManagedNode",
		"UPSTREAM: <carry>: add workload.openshift.io/kubernetes and workload.openshift.io/partition",
		"UPSTREAM: <carry>: kubelet: call A",
		"UPSTREAM: <carry>: kubelet: call B",
		"UPSTREAM: <carry>: kubelet: report cores",
		"UPSTREAM: <drop>: hack/update-vendor.sh",
	}
	if got := strings.Split(r.run("log", "--reverse", "--format=%s", base+"..HEAD"), "\n"); !slices.Equal(got, want) {
		t.Errorf("the commits on the fork's are %q, want %q", got, want)
	}
	for path := range forked {
		content, kept := keptByFork[path]
		if _, err := os.Stat(filepath.Join(to, path)); kept != (err == nil) {
			t.Errorf("%s: is it there? %v; must it be? %v", path, err == nil, kept)
		} else if kept && r.read(path) != content {
			t.Errorf("%s is\n%s\nwant\n%s", path, r.read(path), content)
		}
	}
	if b := r.read("pkg/b.go"); !strings.Contains(b, "ba2\n") || !strings.Contains(b, "bc\nmanaged.B()\n") {
		t.Errorf("pkg/b.go is\n%s", b)
	}
	head := r.run("rev-parse", "HEAD")
	// The checkout need not be named again, nor be there.
	for _, onto := range []string{fork.Dir, ""} {
		c.Must(Export(t.Context(), c.Tree, Options{To: to, Onto: onto}))
		if now := r.run("rev-parse", "HEAD"); now != head {
			t.Errorf("an export with --onto %q, for which nothing has changed, adds commits", onto)
		}
	}
	list := c.Read(project.RevertsFile)
	c.Write(project.RevertsFile, list+"\nrevert load balancing\nhunks pkg/kubelet/cm/types.go NoLoadBalancing\n")
	c.Must(Export(t.Context(), c.Tree, Options{To: to}))
	if got := r.run("log", "--format=%s", head+"..HEAD"); got != "UPSTREAM: revert: <carry>: what patches/openshift/reverts names by now" {
		t.Errorf("after a change of the list it has added %q", got)
	}
	if now := r.read("pkg/kubelet/cm/types.go"); now != upstreamFiles["pkg/kubelet/cm/types.go"] {
		t.Errorf("pkg/kubelet/cm/types.go is\n%s", now)
	}
	c.Write(project.RevertsFile, list)
	other := filepath.Join(t.TempDir(), "other")
	c.Must(Export(t.Context(), c.Tree, Options{To: other, Onto: fork.Dir}))
	if a := (repo{c, git.Repo{Dir: other}}).run("rev-parse", "HEAD"); a != head {
		t.Errorf("two exports onto a fork have the commits %s and %s", a, head)
	}
	fork.commit("UPSTREAM: <carry>: later", map[string]string{"pkg/c.go": "package pkg\n"})
	treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: to, Onto: fork.Dir}), to, fork.Dir, "export to another directory", "nothing was changed")
}

// TestWhatAnExportBreaksIsNamed has lists of which a line is missing.
func TestWhatAnExportBreaksIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		// without are beginnings of lines of the list, or of what is between them and its end.
		without []string
		want    string
	}{
		"a package goes, and one that calls it stays": {
			[]string{"remains management", "replace " + mixedCPUs + " managementcpusoverride"},
			mixedCPUs + "/admission.go:11: undefined: managementcpusoverride",
		},
		"a variable goes, and its use in another hunk stays": {
			[]string{`remains \bisManagedPod`, `|\bisManagedPod\b`},
			"pkg/kubelet/kuberuntime/kuberuntime_container.go:7: undefined: isManagedPod",
		},
		"what goes is all that an import was for": {
			[]string{"hunks pkg/kubelet/kubelet_node_status.go"},
			`pkg/kubelet/kubelet_node_status.go:4: "k8s.io/kubernetes/pkg/kubelet/cadvisor" imported and not used`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, fork := withFork(t)
			list := c.Read(project.RevertsFile)
			for _, gone := range test.without {
				before, rest, ok := strings.Cut(list, gone)
				if !ok {
					t.Fatalf("%s has no %q", project.RevertsFile, gone)
				}
				_, after, _ := strings.Cut(rest, "\n")
				if !strings.HasPrefix(gone, "|") {
					before = strings.TrimSuffix(before, "\n")
				}
				list = before + "\n" + after
			}
			c.Write(project.RevertsFile, list)
			parent := t.TempDir()
			treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: filepath.Join(parent, "fork"), Onto: fork.Dir}), test.want, project.RevertsFile, "nothing was changed")
			if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
				t.Errorf("it has left %v, %v", entries, err)
			}
		})
	}
}

// TestWhatGoesBecomesAsItIsBelowTheFork has a fork of another patch release than the series is of.
func TestWhatGoesBecomesAsItIsBelowTheFork(t *testing.T) {
	const policy = "pkg/kubelet/cm/cpumanager/policy_static.go"
	later := func(source string) string { return strings.Replace(source, "are among", "must be among", 1) }
	published := maps.Clone(upstreamFiles)
	published[policy] = later(upstreamFiles[policy])
	label := func(says string) string {
		return "FROM base\nLABEL io.k8s.display-name=\"x\" \\\n  io.openshift.build.versions=\"" + says + "\"\n"
	}
	t.Run("the release of the label", func(t *testing.T) {
		c, fork := withFork(t)
		fork.commit("UPSTREAM: <carry>: label", map[string]string{policy: later(forked[policy]), labelFile: label("kubernetes=1.37.1")})
		treetest.NewSource(t).Publish("v1.37.1", published)
		r := repo{c, git.Repo{Dir: filepath.Join(t.TempDir(), "fork")}}
		c.Must(Export(t.Context(), c.Tree, Options{To: r.Dir, Onto: fork.Dir}))
		if got := r.read(policy); got != published[policy] {
			t.Errorf("%s is\n%s\nwant\n%s", policy, got, published[policy])
		}
	})
	c := withTwoHooks(t, nil)
	treetest.NewSource(t).Publish("v1.37.1", published)
	for name, test := range map[string]struct {
		file string
		own  bool
	}{
		"the label names another patch release": {label("kubernetes=1.37.1"), true},
		"the label names the release":           {label("kubernetes=1.37.0"), false},
		"the label is of another minor version": {label("kubernetes=1.38.1"), false},
		"the label names no release":            {label("hyperkube=1.37.1"), false},
		"there is no label, as in other forks":  {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := repo{c, git.Repo{Dir: t.TempDir()}}
			if test.file != "" {
				r.write(labelFile, test.file)
			}
			from, err := (&composed{Repo: r.Repo}).baseOf(t.Context(), c.Tree, "pinned")
			if err != nil || (from.module != "") != test.own || from.pinned != "pinned" {
				t.Errorf("the base is %+v (%v), want its own module: %v", from, err, test.own)
			}
		})
	}
	for name, test := range map[string]struct {
		prepare func(t *testing.T)
		want    string
	}{
		"nothing vouches for the release":  {func(t *testing.T) { t.Setenv("GOSUMDB", "off") }, "v1.37.1 is not used, since no checksum database vouches"},
		"the release cannot be downloaded": {func(t *testing.T) { treetest.NewSource(t) }, "k8s.io/kubernetes v1.37.1: 403 Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			c, fork := withFork(t)
			fork.commit("UPSTREAM: <carry>: label", map[string]string{labelFile: "LABEL versions=\"kubernetes=1.37.1\"\n"})
			test.prepare(t)
			treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: filepath.Join(t.TempDir(), "fork"), Onto: fork.Dir}), labelFile, test.want)
		})
	}
}

func TestExportOntoUpstreamRevertsNothing(t *testing.T) {
	c, fork := withFork(t)
	fork.run("checkout", "-q", treetest.Release)
	to := filepath.Join(t.TempDir(), "fork")
	c.Must(Export(t.Context(), c.Tree, Options{To: to, Onto: fork.Dir}))
	r := repo{c, git.Repo{Dir: to}}
	if got := r.run("log", "--format=%s", treetest.Release+"..HEAD"); strings.Contains(got, project.RevertPrefix) {
		t.Errorf("the commits are\n%s", got)
	}
	fresh := export(c, filepath.Join(t.TempDir(), "fresh"))
	if a, b := r.run("rev-parse", "HEAD^{tree}"), fresh.run("rev-parse", "HEAD^{tree}"); a != b {
		t.Error("an export onto upstream differs from one of the modules")
	}
}

func TestNothingOfTheForkMayRemain(t *testing.T) {
	for name, test := range map[string]struct {
		path, content string
		want          []string
	}{
		"a hook in a file that upstream has not": {
			"pkg/kubelet/other/other.go", "package other\n\nvar on = managed.IsEnabled()\n",
			[]string{"pkg/kubelet/other/other.go:3: var on = managed.IsEnabled()", "UPSTREAM: <carry>: one more)"},
		},
		"a hook elsewhere": {
			"cmd/kubelet/app.go", "package app\n\nimport \"k8s.io/kubernetes/pkg/kubelet/managed\"\n",
			[]string{`cmd/kubelet/app.go:3: import "k8s.io/kubernetes/pkg/kubelet/managed"`, "UPSTREAM: <carry>: one more)"},
		},
		"the name of a plugin": {
			"openshift-kube-apiserver/admission/config.go", "package admission\n\nconst name = \"autoscaling.openshift.io/ManagedNode\"\n",
			[]string{"openshift-kube-apiserver/admission/config.go:3", "UPSTREAM: <carry>: one more)"},
		},
		"the pinning file": {
			"docs/pinning.md", "See /etc/kubernetes/openshift-workload-pinning.\n",
			[]string{"docs/pinning.md:1", "UPSTREAM: <carry>: one more)"},
		},
		"a line that is also another feature's": {
			"pkg/kubelet/cm/types.go", "package cm\n\ntype Config struct {\n\tName string // managed.IsEnabled, sharedcpus\n}\n",
			[]string{project.RevertsFile, "hunks pkg/kubelet", "pkg/kubelet/cm/types.go: upstream's line 4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, fork := withFork(t)
			fork.commit("UPSTREAM: <carry>: one more", map[string]string{test.path: test.content})
			parent := t.TempDir()
			treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: filepath.Join(parent, "fork"), Onto: fork.Dir}), append(test.want, project.RevertsFile)...)
			if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
				t.Errorf("it has left %v, %v", entries, err)
			}
		})
	}
}

func TestAPatchThatDoesNotMergeIsNamed(t *testing.T) {
	c, fork := withFork(t)
	fork.commit("UPSTREAM: <carry>: other b", map[string]string{"pkg/b.go": strings.Replace(treetest.Numbered("b"), "bc\n", "bc2\n", 1)})
	treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: filepath.Join(t.TempDir(), "fork"), Onto: fork.Dir}),
		"patches/kubelet-call-b.patch does not merge", "in pkg/b.go", "nothing was changed")
}

func TestUnsuitableCheckoutsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(r *repo)
		want    []string
	}{
		"no repository": {func(r *repo) { r.Dir = r.TempDir() }, []string{"is not the top of a git checkout"}},
		"no directory":  {func(r *repo) { r.Dir = filepath.Join(r.TempDir(), "none") }, []string{"none is not the top of a git checkout"}},
		"a directory of a checkout": {func(r *repo) { r.Dir = filepath.Join(r.Dir, "pkg") },
			[]string{"pkg is not the top of a git checkout"}},
		"another project": {func(r *repo) { r.commit("x", map[string]string{"go.mod": "module example.org/x\n"}) },
			[]string{`the module of its go.mod is "example.org/x", not k8s.io/kubernetes`}},
		"no Go":       {func(r *repo) { r.run("rm", "-q", "go.mod"); r.commit("x", nil) }, []string{"is not a checkout of Kubernetes"}},
		"a dirty one": {func(r *repo) { r.write("pkg/a.go", "mine\n") }, []string{"uncommitted work (M pkg/a.go)"}},
		"another minor version": {func(r *repo) {
			r.commit("x", map[string]string{versionFile: strings.Replace(versionSource, "1.37", "1.36", 1)})
		}, []string{"is of Kubernetes v1.36", versionFile, "v1.37.0 is not near it", "name a release of v1.36"}},
		"a version that is not known": {func(r *repo) { r.commit("x", map[string]string{versionFile: "package version\n"}) },
			[]string{versionFile + " has no DefaultKubeBinaryVersion"}},
		"a shallow one": {func(r *repo) {
			from := r.Dir
			r.Dir = r.TempDir()
			r.run("clone", "-q", "--depth=1", "file://"+from, ".")
		}, []string{"is a shallow clone", "fetch --unshallow"}},
		"a partial one": {func(r *repo) {
			r.run("config", "remote.origin.promisor", "true")
		}, []string{"is a partial clone", "without --filter"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, fork := withFork(t)
			test.prepare(&fork)
			to := filepath.Join(t.TempDir(), "fork")
			treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: to, Onto: fork.Dir}), append(test.want, fork.Dir, "nothing was changed")...)
			if _, err := os.Stat(to); err == nil {
				t.Errorf("it has made %s", to)
			}
		})
	}
}

func TestAnExportOntoACheckoutStaysOne(t *testing.T) {
	c, fork := withFork(t)
	to := filepath.Join(t.TempDir(), "fork")
	export(c, to)
	treetest.ExpectError(t, Export(t.Context(), c.Tree, Options{To: to, Onto: fork.Dir}), to, fork.Dir, "export to another directory")
	treetest.ExpectError(t, Export(t.Context(), tree.Of(c.Project, "v1.36.3"), Options{To: to}), to, "v1.36.3 is not a newer release of v1.37")
}

func TestAnExportIsWholeWithoutTheCheckout(t *testing.T) {
	c, fork := withFork(t)
	borrower := repo{c, git.Repo{Dir: t.TempDir()}}
	borrower.run("clone", "-q", "--shared", fork.Dir, ".")
	to := filepath.Join(t.TempDir(), "fork")
	c.Must(Export(t.Context(), c.Tree, Options{To: to, Onto: borrower.Dir}))
	c.Must(os.RemoveAll(fork.Dir))
	repo{c, git.Repo{Dir: to}}.run("rev-list", "--objects", "--quiet", "HEAD")
}

func TestParseRevertsNamesTheLine(t *testing.T) {
	for list, want := range map[string]string{
		"remove a":                   `reverts:1: "remove a" is before the first revert`,
		"revert x\n\ndelete a":       `reverts:3: unknown verb "delete"`,
		"# A comment.\nrevert":       `reverts:2: "revert" does not say what to do`,
		"revert x\nreplace a b c":    "reverts:2: replace takes a path, an expression, \" => \" and the text",
		"revert x\nreplace a ( => b": "reverts:2: error parsing regexp",
		"replace a b => c":           `reverts:1: "replace a b => c" is before the first revert`,
		"revert x\nhunks a":          "reverts:2: hunks takes a path, and an expression",
		"revert x\nremove a b":       "reverts:2: remove takes a path, and an expression unless it is remove",
		"revert x\nremove ../a":      `reverts:2: "../a" is not a path in a tree`,
		"revert x\nlines a (":        "reverts:2: error parsing regexp",
		"stays a\nremains [\nfoo":    "reverts:2: error parsing regexp",
		"revert x\nlines /etc/x foo": `reverts:2: "/etc/x" is not a path in a tree`,
	} {
		_, err := parseReverts("reverts", []byte(list))
		treetest.ExpectError(t, err, want)
	}
}
