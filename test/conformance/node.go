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

func ofTopologyManager(spec specs.Spec) bool {
	return strings.Contains(spec.Name, "] Topology Manager [")
}

// nodeImages are the repositories of the images that the specs use.
var nodeImages = []string{"pause", "e2e-test-images/busybox", "e2e-test-images/agnhost"}

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
	differences, err := specs.ParseKnown(nodeDifferencesText)
	if err != nil {
		return fmt.Errorf("test/conformance/node-differences: %w", err)
	}
	leftOut, err := specs.ParseKnown(nodeLeftOutText)
	if err != nil {
		return fmt.Errorf("test/conformance/node-left-out: %w", err)
	}
	say := sayer()
	local := &specs.Local{Binary: filepath.Join(o.config.Bin, nodeTests)}
	all, err := o.list(ctx, local, nodeFocus)
	if err != nil {
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
	payload[nodeTests] = local.Binary
	payload["upstream/kubelet"] = filepath.Join(o.unpatched, "kubelet")
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
	// Until all kinds have ended, there is no report of any.
	reports, err := filepath.Glob(filepath.Join(o.out, "*", reportName))
	if err != nil {
		return err
	}
	for _, report := range reports {
		if err := os.Remove(report); err != nil {
			return err
		}
	}
	var findings specs.Findings
	for _, kind := range nodeVMs {
		some := slices.DeleteFunc(slices.Clone(all), func(spec specs.Spec) bool { return !kind.has(spec) })
		if len(some) == 0 {
			continue
		}
		found, err := o.nodeIn(ctx, kind, some, payload, known, differences, say)
		if err != nil {
			return errors.Join(err, verdict(findings))
		}
		findings = append(findings, found...)
	}
	return verdict(findings)
}

// nodeIn compares specs in a kind of VM.
func (o *options) nodeIn(ctx context.Context, kind nodeVM, all []specs.Spec, payload map[string]string, known, differences specs.Known, say func(format string, args ...any)) (specs.Findings, error) {
	var sides []*side
	for i, is := range []struct{ name, kubelets, pinning string }{{"unpatched", "upstream", ""}, {"patched", "bin", ""}, {"partitioned", "bin", testbed.Pinning}} {
		s, err := o.side(is.name+kind.suffix, "Kubernetes node tests", say)
		if err != nil {
			return nil, err
		}
		node := &testbed.Node{Number: i + 1, Topology: kind.topology, Payload: payload, Kubelets: is.kubelets, Pinning: is.pinning, Progress: s.progress}
		s.bed, s.suite.Program, s.suite.Lost = node, node, vm.ErrStopped
		s.suite.Batch, s.suite.Limit, s.suite.SetUps = testbed.NodeBatch, testbed.NodeLimit, testbed.NodeSetUps
		if s.subject, err = subject(payload, node.Describe()); err != nil {
			return nil, err
		}
		sides = append(sides, s)
	}
	if err := runAll(ctx, all, sides...); err != nil {
		return nil, err
	}
	unpatched, patched, partitioned := sides[0], sides[1], sides[2]
	findings, err := patched.compare(ctx, unpatched, all, known, nil, "without the series")
	if err != nil {
		return nil, err
	}
	more, err := partitioned.compare(ctx, patched, all, known, differences, "without the pinning file")
	if err != nil {
		return nil, err
	}
	return slices.Concat(patched.judge(all, known), findings, more), summaries(all, sides...)
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
