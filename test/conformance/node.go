// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/kubernetes/test/conformance/specs"
	"workload.openshift.io/kubernetes/test/conformance/testbed"
)

// nodeKnownText has the specs of the kubelet that cannot pass in a VM, and nodeDifferencesText those
// that end otherwise with a pinning file.
//
//go:embed node-known
var nodeKnownText string

//go:embed node-differences
var nodeDifferencesText string

// nodeTests is the program of upstream's tests of the kubelet.
const nodeTests = "e2e_node.test"

// nodeFocus is the expression of the names of those that run: of CPU, memory and topology manager, and of
// resizing in place. nodeLeftOutText has expressions of the names of those that do not, all the same.
const nodeFocus = `\] (CPU|Memory|Topology) Manager \[|\] Pod InPlace Resize Container (guaranteed pods|burstable pods - extended|decrease|resize pod)`

//go:embed node-left-out
var nodeLeftOutText string

// nodeSpecs returns those of the specs that run. idle are the expressions of what is left out that match
// none of them: not each release has all specs.
func nodeSpecs(all []specs.Spec, leftOut specs.Known) (run []specs.Spec, idle []string, err error) {
	focus := regexp.MustCompile(nodeFocus)
	run = slices.DeleteFunc(slices.Clone(all), func(spec specs.Spec) bool { return !focus.MatchString(spec.Name) })
	for _, text := range slices.Sorted(maps.Keys(leftOut)) {
		expression, err := regexp.Compile(text)
		if err != nil {
			return nil, nil, fmt.Errorf("test/conformance/node-left-out: %w", err)
		}
		before := len(run)
		run = slices.DeleteFunc(run, func(spec specs.Spec) bool { return expression.MatchString(spec.Name) })
		if len(run) == before {
			idle = append(idle, text)
		}
	}
	return run, idle, nil
}

// nodeVM is a kind of VM in which specs run.
type nodeVM struct {
	// suffix is that of the names of its sides.
	suffix   string
	topology vm.Topology
	// has reports whether a spec runs in it.
	has func(specs.Spec) bool
}

// nodeVMs are those of all specs. The suite of the topology manager expects a container on the threads of the
// second CPU (upstream test/e2e_node/topology_manager_test.go, runMultipleCPUGuPod). With two threads a core, QEMU
// makes that one a thread of the first core, of which the kubelet keeps CPU 0. So the suite runs where a core has one.
var nodeVMs = []nodeVM{
	{"", vm.DefaultTopology, func(spec specs.Spec) bool { return !ofTopologyManager(spec) }},
	{"-one-thread", vm.Topology{Sockets: 2, Cores: 4, Threads: 1}, ofTopologyManager},
}

// of returns those of the specs that run in it.
func (k nodeVM) of(all []specs.Spec) []specs.Spec {
	return slices.DeleteFunc(slices.Clone(all), func(spec specs.Spec) bool { return !k.has(spec) })
}

func ofTopologyManager(spec specs.Spec) bool {
	return strings.Contains(spec.Name, "] Topology Manager [")
}

// nodeImages are the repositories of the images that the specs use.
var nodeImages = []string{"pause", "e2e-test-images/busybox"}

func (o *options) nodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "node",
		Short: "Run upstream's tests of CPU, memory and topology manager and of resizes in VMs, and compare",
		Long: `Run upstream's tests of CPU manager, memory manager, topology manager and of resizing in place
(test/e2e_node), in a virtual machine each: with the unpatched kubelet, with the patched one
without a pinning file, which must do the same, and with one, where test/conformance/node-differences
has what differs, and why.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.node(cmd.Context()) },
	}
}

func (o *options) node(ctx context.Context) (err error) {
	if o.unpatched == "" {
		return errNoUnpatched
	}
	unlock, err := lock(o.out)
	if err != nil {
		return err
	}
	defer unlock()
	known, err := specs.ParseKnown(nodeKnownText)
	if err != nil {
		return fmt.Errorf("test/conformance/node-known: %w", err)
	}
	differences, err := specs.ParseDifferences(nodeDifferencesText)
	if err != nil {
		return fmt.Errorf("test/conformance/node-differences: %w", err)
	}
	leftOut, err := specs.ParseKnown(nodeLeftOutText)
	if err != nil {
		return fmt.Errorf("test/conformance/node-left-out: %w", err)
	}
	say := sayer()
	local := &specs.Local{Binary: filepath.Join(o.unpatched, nodeTests)}
	all, whole, err := o.list(ctx, local, nodeFocus)
	if err != nil {
		return err
	}
	if whole, _, err = nodeSpecs(whole, leftOut); err != nil {
		return err
	}
	all, idle, err := nodeSpecs(all, leftOut)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("none of the specs that this is about has a name that matches %q", o.focus)
	}
	if o.everything() {
		if err := verdict(append(known.Unlisted(all), differences.Unlisted(all)...)); err != nil {
			return err
		}
		for _, text := range idle {
			say("test/conformance/node-left-out: no spec of this release is of the name %s", text)
		}
	}
	say("making the images that %d specs use", len(all))
	files := vm.Files{Bin: o.config.Bin, Tools: o.config.Tools, Tree: o.config.Tree, Cluster: o.cluster}
	defer func() { err = errors.Join(err, files.Close()) }()
	payload, err := files.Payload(ctx)
	if err != nil {
		return err
	}
	// The tests have a control plane in them.
	maps.DeleteFunc(payload, func(name, _ string) bool { return strings.HasPrefix(name, "bin/") })
	payload[nodeTests] = local.Binary
	archives, err := o.archives(ctx, local)
	if err != nil {
		return err
	}
	maps.Copy(payload, archives)

	release, err := testbed.OwnVMs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	var kinds []*nodeKind
	for _, machine := range nodeVMs {
		kind := &nodeKind{all: machine.of(all), whole: machine.of(whole)}
		if len(kind.all) == 0 {
			continue
		}
		if kind.sides, err = o.nodeSides(machine, payload, say); err != nil {
			return err
		}
		kinds = append(kinds, kind)
	}
	for _, kind := range kinds {
		for _, s := range kind.sides {
			if o.fresh {
				if err := s.forget(kind.all, o.everything()); err != nil {
					return err
				}
			}
			// Until all kinds have ended, there is no report of any.
			if err := s.removeReport(); err != nil {
				return err
			}
		}
	}
	var findings specs.Findings
	for _, kind := range kinds {
		found, err := kind.compare(ctx, known, differences)
		if err != nil {
			return errors.Join(err, verdict(findings))
		}
		findings = append(findings, found...)
	}
	return verdict(findings)
}

// nodeKind is what runs in a kind of VM, with each of the kubelets. all are some of the whole.
type nodeKind struct {
	all, whole []specs.Spec
	sides      []*side
}

// nodeSides are those that are compared in a kind of VM: with upstream's kubelet, with the patched one and no pinning
// file, and with one. The payload has no kubelet yet.
func (o *options) nodeSides(kind nodeVM, payload map[string]string, say func(format string, args ...any)) (sides []*side, err error) {
	for i, is := range []struct{ name, bin, pinning string }{{"unpatched", o.unpatched, ""}, {"patched", o.config.Bin, ""}, {"partitioned", o.config.Bin, testbed.Pinning}} {
		s, err := o.side(is.name+kind.suffix, "Kubernetes node tests", say)
		if err != nil {
			return nil, err
		}
		node := &testbed.Node{Number: i + 1, Topology: kind.topology, Payload: maps.Clone(payload), Pinning: is.pinning, Progress: s.progress}
		node.Payload[testbed.Kubelet] = filepath.Join(is.bin, "kubelet")
		s.bed, s.suite.Program, s.suite.Lost = node, node, vm.ErrStopped
		s.suite.Batch, s.suite.Limit, s.suite.LimitEach, s.suite.SetUps = testbed.NodeBatch, testbed.NodeLimit, testbed.NodeLimitEach, testbed.NodeSetUps
		if s.subject, err = subject(node.Payload, node.Describe()); err != nil {
			return nil, err
		}
		// What it does there is described.
		if node.Payload[testbed.Collector], err = os.Executable(); err != nil {
			return nil, err
		}
		sides = append(sides, s)
	}
	return sides, nil
}

// compare runs the specs on all sides, and compares.
func (k *nodeKind) compare(ctx context.Context, known specs.Known, differences specs.Differences) (specs.Findings, error) {
	if err := runAll(ctx, k.all, k.sides...); err != nil {
		return nil, err
	}
	unpatched, patched, partitioned := k.sides[0], k.sides[1], k.sides[2]
	findings, err := patched.compare(ctx, unpatched, k.all, known, nil, "without the series")
	if err != nil {
		return nil, err
	}
	// Before it is compared with: what it repeats counts.
	failed, err := patched.judge(ctx, k.all, known)
	if err != nil {
		return nil, err
	}
	more, err := partitioned.compare(ctx, patched, k.all, known, differences, "without the pinning file")
	if err != nil {
		return nil, err
	}
	return slices.Concat(failed, findings, more), summaries(k.all, k.whole, k.sides...)
}

// archives makes the images that the specs use, and returns their archives by their paths in the payload.
func (o *options) archives(ctx context.Context, program *specs.Local) (map[string]string, error) {
	references, err := program.Images(ctx)
	if err != nil {
		return nil, err
	}
	references = slices.DeleteFunc(references, func(reference string) bool {
		tag, err := name.NewTag(reference)
		return err != nil || !slices.Contains(nodeImages, tag.RepositoryStr())
	})
	set, err := o.images(ctx, references)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.out, "archives")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	archives := map[string]string{}
	for reference, image := range set.Images {
		tag, err := name.NewTag(reference)
		if err != nil {
			return nil, err
		}
		// The payload has images of the same names, of other registries; and some have several tags.
		file := "upstream-" + path.Base(tag.RepositoryStr()) + "-" + tag.TagStr() + ".tar"
		archives["images/"+file] = filepath.Join(dir, file)
		if err := tarball.WriteToFile(filepath.Join(dir, file), tag, image); err != nil {
			return nil, err
		}
	}
	return archives, nil
}
