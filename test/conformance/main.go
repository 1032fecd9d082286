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

// Command conformance runs upstream's conformance specs on a partitioned cluster, and on the same
// cluster with unpatched binaries, and compares. Its packages know no more than their doc comments
// say; this file puts them together.
package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/conformance/images"
	"workload.openshift.io/kubernetes/test/conformance/specs"
	"workload.openshift.io/kubernetes/test/conformance/testbed"
)

//go:embed known
var knownText string

// repeats is how often specs that differ run again on both clusters.
const repeats = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// options are those of both commands.
type options struct {
	config           host.Config
	unpatched        string
	debs, out, focus string
	parallel         int
	fresh, retry     bool
}

func command() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:           "conformance",
		Short:         "Run upstream's conformance specs on a partitioned cluster",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVar(&o.config.Bin, "bin", "", "directory of the patched binaries, and of upstream's tests")
	flags.StringVar(&o.unpatched, "upstream-bin", "", "directory of the unpatched kubelet and kube-apiserver, to compare with")
	flags.StringVar(&o.config.Tools, "tools", "", "directory of etcd, containerd, runc, the CNI plugins and CoreDNS")
	flags.StringVar(&o.config.Tree, "tree", "", "source tree of the release")
	flags.StringVar(&o.debs, "debs", "", "directory in which Debian packages are kept")
	flags.StringVar(&o.out, "out", "", "directory for results, logs and images")
	flags.StringVar(&o.focus, "focus", `\[Conformance\]`, "regular expression of the names of the specs that are to run")
	flags.IntVar(&o.parallel, "parallel", 4, "how many specs run at a time, unless they are serial")
	flags.BoolVar(&o.fresh, "fresh", false, "begin again, in place of going on with what an earlier run did not do")
	flags.BoolVar(&o.retry, "retry", false, "run once more what has not passed")
	for _, name := range []string{"bin", "tools", "tree", "debs", "out"} {
		if err := root.MarkPersistentFlagRequired(name); err != nil {
			panic(err)
		}
	}
	run := &cobra.Command{
		Use:   "run",
		Short: "Run the specs on a partitioned cluster",
		Long: `Run the specs on a partitioned cluster on this host, whose control plane, kube-proxy and CoreDNS
are partitioned pods. A run that is interrupted goes on where it stopped, as long as the
binaries are the same. It fails if a spec fails that is not known to, or passes that is.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	compare := &cobra.Command{
		Use:   "compare",
		Short: "Run them there and on the same cluster with unpatched binaries, and compare",
		Long: `Run the specs on a partitioned cluster, and on the same cluster with the unpatched kubelet and
kube-apiserver and without a pinning file. A spec that passes on one of them alone runs three
more times on both. What differs still is printed, and must be empty.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.compare(cmd.Context()) },
	}
	root.AddCommand(run, compare)
	return root
}

// side is one of the clusters, and what became of the specs on it.
type side struct {
	name     string
	testbed  *testbed.Testbed
	suite    *specs.Suite
	subject  string
	dir      string
	progress func(format string, args ...any)
	parallel int
	retry    bool
}

func (o *options) run(ctx context.Context) error {
	all, known, sides, err := o.prepare(ctx, "")
	if err != nil {
		return err
	}
	results, err := sides[0].run(ctx, all, "results", 1)
	if err != nil {
		return err
	}
	findings := specs.Judge(all, results[0], known)
	passed, _ := results[0].Count(all)
	fmt.Printf("%d of %d specs passed on the partitioned cluster, %d are known to fail; %s\n", passed, len(all), in(all, known), filepath.Join(sides[0].dir, "junit.xml"))
	return verdict(findings)
}

func (o *options) compare(ctx context.Context) error {
	if o.unpatched == "" {
		return errors.New("--upstream-bin is missing: carry build --upstream builds what to compare with")
	}
	all, known, sides, err := o.prepare(ctx, o.unpatched)
	if err != nil {
		return err
	}
	var both [2]*specs.Results
	for i, side := range sides {
		results, err := side.run(ctx, all, "results", 1)
		if err != nil {
			return err
		}
		both[i] = results[0]
	}
	differing := specs.Differing(all, both[0], both[1])
	var again [2][]*specs.Results
	if len(differing) > 0 {
		for i, side := range sides {
			side.progress("%d specs differ, and run %d more times", len(differing), repeats)
			if again[i], err = side.run(ctx, differing, "again", repeats); err != nil {
				return err
			}
		}
	}
	findings := specs.Compare(differing, again[0], again[1])
	for i, side := range sides {
		passed, _ := both[i].Count(all)
		fmt.Printf("%d of %d specs passed on the %s cluster; %s\n", passed, len(all), side.name, filepath.Join(side.dir, "junit.xml"))
	}
	fmt.Printf("%d are known to fail, %d differed at first, %d differ still\n", in(all, known), len(differing), len(findings))
	// What fails on both, or is known to and passes on both, is the same on either.
	same := slices.DeleteFunc(slices.Clone(all), func(spec specs.Spec) bool { return slices.Contains(differing, spec) })
	return verdict(append(findings, specs.Judge(same, both[0], known)...))
}

// in counts the specs that are known.
func in(all []specs.Spec, known specs.Known) (count int) {
	for _, spec := range all {
		if _, is := known[spec.Name]; is {
			count++
		}
	}
	return count
}

func verdict(findings specs.Findings) error {
	for _, finding := range findings {
		fmt.Println(finding)
	}
	if len(findings) > 0 {
		return fmt.Errorf("%d findings", len(findings))
	}
	return nil
}

// prepare lists the specs, makes the images, and describes the partitioned cluster, and the one to
// compare with if there are unpatched binaries.
func (o *options) prepare(ctx context.Context, unpatched string) (all []specs.Spec, known specs.Known, sides []*side, err error) {
	if err := host.Unfit(); err != nil {
		return nil, nil, nil, err
	}
	if _, err := os.Stat(host.Dir); err == nil && !host.Abandoned(host.Dir) {
		return nil, nil, nil, fmt.Errorf("%s is in use: tests run, or there is a cluster that make down removes", host.Dir)
	}
	if known, err = specs.ParseKnown(knownText); err != nil {
		return nil, nil, nil, fmt.Errorf("known: %w", err)
	}
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Since(began).Round(time.Second), fmt.Sprintf(format, args...))
	}
	suite := &specs.Suite{
		Binary: filepath.Join(o.config.Bin, "e2e.test"), Kubectl: filepath.Join(o.config.Bin, "kubectl"), Tree: o.config.Tree,
		Kubeconfig: host.Kubeconfig, Logs: filepath.Join(o.out, "logs"),
	}
	if all, err = suite.List(ctx, o.focus); err != nil {
		return nil, nil, nil, err
	}
	if len(all) == 0 {
		return nil, nil, nil, fmt.Errorf("no spec has a name that matches %q", o.focus)
	}
	references, err := suite.Images(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	say("making the images that %d specs use", len(all))
	set, err := images.Build(ctx, images.Options{
		Bin: o.config.Bin, Tools: o.config.Tools, Tree: o.config.Tree, Debs: o.debs, Dir: filepath.Join(o.out, "images"),
		References: append(references, testbed.Proxy, testbed.CoreDNS),
	})
	if err != nil {
		return nil, nil, nil, err
	}
	handler, err := set.Handler()
	if err != nil {
		return nil, nil, nil, err
	}
	patched := []string{filepath.Join(o.config.Bin, "kubelet"), filepath.Join(o.config.Bin, "kube-apiserver")}
	binaries := map[string][]string{"partitioned": patched}
	if unpatched != "" {
		binaries["unpatched"] = []string{filepath.Join(unpatched, "kubelet"), filepath.Join(unpatched, "kube-apiserver")}
	}
	for _, name := range slices.Sorted(maps.Keys(binaries)) {
		s := &side{name: name, dir: filepath.Join(o.out, name), parallel: o.parallel, retry: o.retry}
		s.progress = func(format string, args ...any) { say("%s: %s", name, fmt.Sprintf(format, args...)) }
		config := o.config
		config.Progress = s.progress
		from := ""
		if name == "unpatched" {
			from = unpatched
		}
		s.testbed = testbed.New(config, handler, from)
		copied := *suite
		copied.Logs = filepath.Join(s.dir, "logs")
		s.suite = &copied
		if o.fresh {
			if err := os.RemoveAll(s.dir); err != nil {
				return nil, nil, nil, err
			}
		}
		if s.subject, err = subject(append([]string{suite.Binary}, binaries[name]...)); err != nil {
			return nil, nil, nil, err
		}
		sides = append(sides, s)
	}
	return all, known, sides, nil
}

// subject identifies what is tested: the programs.
func subject(programs []string) (string, error) {
	sum := sha256.New()
	for _, program := range programs {
		file, err := os.Open(program)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// run runs specs so many times, as far as there are no results yet, each time into a file of its own.
// It starts the cluster if there is anything to do, and removes it in the end.
func (s *side) run(ctx context.Context, all []specs.Spec, name string, times int) (results []*specs.Results, err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	missing := 0
	for i := range times {
		r, err := specs.Open(filepath.Join(s.dir, fmt.Sprintf("%s-%d.json", name, i+1)), s.subject)
		if err != nil {
			return nil, err
		}
		if s.retry {
			if err := r.ForgetFailures(all); err != nil {
				return nil, err
			}
		}
		missing += len(r.Missing(all))
		results = append(results, r)
	}
	if missing > 0 {
		s.progress("%d of %d specs are to run", missing, times*len(all))
		defer func() {
			if err != nil && ctx.Err() == nil {
				err = errors.Join(err, s.testbed.SaveLogs(filepath.Join(s.dir, "components")))
			}
			err = errors.Join(err, s.testbed.Down(context.WithoutCancel(ctx)))
		}()
		if err := s.testbed.Up(ctx); err != nil {
			return nil, err
		}
		for _, r := range results {
			if err := s.suite.Run(ctx, all, s.parallel, r, s.report); err != nil {
				return nil, err
			}
		}
	}
	if times > 1 {
		return results, nil
	}
	return results, results[0].WriteJUnit(filepath.Join(s.dir, "junit.xml"), "Kubernetes conformance, "+s.name, all)
}

// report says how far a run is.
func (s *side) report(done, all int, failed []specs.Spec) {
	s.progress("%d of %d specs have run", done, all)
	for _, spec := range failed {
		s.progress("not passed: %s", spec.Name)
	}
}
