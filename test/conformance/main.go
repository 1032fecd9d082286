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

// Command conformance runs upstream's conformance specs on a partitioned cluster and on the same
// cluster with unpatched binaries, and compares the results.
package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
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

// conformance is the expression of the names of all conformance specs.
const conformance = `\[Conformance\]`

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
	flags.StringVar(&o.focus, "focus", conformance, "regular expression of the names of the specs that are to run")
	flags.IntVar(&o.parallel, "parallel", 16, "how many specs run at a time, unless they are serial")
	flags.BoolVar(&o.fresh, "fresh", false, "begin again, in place of going on with what an earlier run did not do")
	flags.BoolVar(&o.retry, "retry", false, "run once more what did not pass")
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
programs, images and configuration are the same. It fails if a spec fails unexpectedly, or if one
passes that is known to fail.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	compare := &cobra.Command{
		Use:   "compare",
		Short: "Run them there and on the same cluster with unpatched binaries, and compare",
		Long: `Run the specs on a partitioned cluster, and on the same cluster with the unpatched kubelet and
kube-apiserver and without a pinning file. A spec that passes on one of them alone runs three
more times on both. It prints what still differs, and fails if there is anything.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.compare(cmd.Context()) },
	}
	root.AddCommand(run, compare)
	return root
}

func (o *options) run(ctx context.Context) error {
	return o.prepared(ctx, "", func(all []specs.Spec, known specs.Known, sides []*side) error {
		results, err := sides[0].run(ctx, all)
		if err != nil {
			return err
		}
		sides[0].summary(all, known, results)
		return verdict(specs.Judge(all, results, known))
	})
}

func (o *options) compare(ctx context.Context) error {
	if o.unpatched == "" {
		return errors.New("--upstream-bin is missing: carry build --upstream builds what to compare with")
	}
	return o.prepared(ctx, o.unpatched, func(all []specs.Spec, known specs.Known, sides []*side) error {
		var both [2]*specs.Results
		for i, side := range sides {
			var err error
			if both[i], err = side.run(ctx, all); err != nil {
				return err
			}
		}
		differing := specs.Differing(all, both[0], both[1])
		var again [2][]*specs.Results
		if len(differing) > 0 {
			for i, side := range sides {
				var err error
				if again[i], err = side.repeat(ctx, differing, both); err != nil {
					return err
				}
			}
		}
		for i, side := range sides {
			side.summary(all, known, both[i])
		}
		same := slices.DeleteFunc(slices.Clone(all), func(spec specs.Spec) bool { return slices.Contains(differing, spec) })
		findings := append(specs.Compare(differing, again[0], again[1], known), specs.Judge(same, both[0], known)...)
		fmt.Printf("%d specs differed at first; there are %d findings\n", len(differing), len(findings))
		return verdict(findings)
	})
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

// idle returns an error if there is a cluster on this host that somebody uses.
func idle() error {
	if _, err := os.Stat(host.Dir); err == nil && !host.Abandoned(host.Dir) {
		return fmt.Errorf("%s is in use: tests run, or there is a cluster that make down removes", host.Dir)
	}
	return nil
}

// prepared calls a function with the specs, with what is known of them, and with the partitioned
// cluster, and the one to compare with if there are unpatched binaries. Nobody else uses the results
// meanwhile.
func (o *options) prepared(ctx context.Context, unpatched string, use func([]specs.Spec, specs.Known, []*side) error) error {
	if err := host.Unfit(); err != nil {
		return err
	}
	if err := idle(); err != nil {
		return err
	}
	unlock, err := lock(o.out)
	if err != nil {
		return err
	}
	defer unlock()
	home, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Since(began).Round(time.Second), fmt.Sprintf(format, args...))
	}
	suite := specs.Suite{
		Binary: filepath.Join(o.config.Bin, "e2e.test"), Kubectl: filepath.Join(o.config.Bin, "kubectl"), Tree: o.config.Tree,
		Kubeconfig: host.Kubeconfig, Home: home, Logs: filepath.Join(o.out, "logs"),
	}
	all, known, err := o.list(ctx, &suite)
	if err != nil {
		return err
	}
	say("making the images that %d specs use", len(all))
	set, err := o.images(ctx, &suite)
	if err != nil {
		return err
	}
	if len(set.NotBuilt) > 0 {
		say("nobody makes, and specs that use them fail: %s", strings.Join(set.NotBuilt, ", "))
	}
	handler, err := set.Handler()
	if err != nil {
		return err
	}
	sides := []*side{{name: "partitioned"}}
	if unpatched != "" {
		sides = append(sides, &side{name: "unpatched", unpatched: unpatched})
	}
	for _, s := range sides {
		s.dir, s.parallel, s.retry, s.suite = filepath.Join(o.out, s.name), o.parallel, o.retry, suite
		s.suite.Logs = filepath.Join(s.dir, "logs")
		s.progress = func(format string, args ...any) { say("%s: %s", s.name, fmt.Sprintf(format, args...)) }
		config := o.config
		config.Progress = s.progress
		s.testbed = testbed.New(config, handler, s.unpatched)
		if o.fresh {
			if err := os.RemoveAll(s.dir); err != nil {
				return err
			}
		}
		if s.subject, err = s.tested(set); err != nil {
			return err
		}
	}
	return use(all, known, sides)
}

// lock keeps others from a directory until unlock.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use by another run: %w", dir, err), file.Close())
	}
	return func() { file.Close() }, nil
}

// list returns the specs that are to run, and those that are known to fail.
func (o *options) list(ctx context.Context, suite *specs.Suite) (all []specs.Spec, known specs.Known, err error) {
	if known, err = specs.ParseKnown(knownText); err != nil {
		return nil, nil, fmt.Errorf("test/conformance/known: %w", err)
	}
	if all, err = suite.List(ctx, o.focus); err != nil {
		return nil, nil, err
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("no spec has a name that matches %q", o.focus)
	}
	if o.focus == conformance {
		return all, known, verdict(known.Unlisted(all))
	}
	return all, known, nil
}

func (o *options) images(ctx context.Context, suite *specs.Suite) (*images.Set, error) {
	references, err := suite.Images(ctx)
	if err != nil {
		return nil, err
	}
	return images.Build(ctx, images.Options{
		Bin: o.config.Bin, Tools: o.config.Tools, Tree: o.config.Tree, Debs: o.debs, Dir: filepath.Join(o.out, "images"),
		References: append(references, testbed.Proxy, testbed.CoreDNS),
	})
}

// side is one of the clusters, and what became of the specs on it.
type side struct {
	name, unpatched string
	testbed         *testbed.Testbed
	suite           specs.Suite
	// subject identifies what is tested.
	subject  string
	dir      string
	progress func(format string, args ...any)
	parallel int
	retry    bool
}

// tested identifies all that a result may depend on: the programs, the configuration of the cluster, and
// the images.
func (s *side) tested(set *images.Set) (string, error) {
	sum := sha256.New()
	for _, dir := range []string{s.testbed.Config.Bin, s.testbed.Config.Tools, s.unpatched} {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", err
		}
		for _, entry := range entries {
			if entry.Name() == "SHA256SUMS" {
				continue // it may name the same programs in another order
			}
			file, err := os.Open(filepath.Join(dir, entry.Name()))
			if err != nil {
				return "", err
			}
			fmt.Fprintln(sum, entry.Name())
			_, err = io.Copy(sum, file)
			if err := errors.Join(err, file.Close()); err != nil {
				return "", err
			}
		}
	}
	for _, reference := range slices.Sorted(maps.Keys(set.Images)) {
		digest, err := set.Images[reference].Digest()
		if err != nil {
			return "", fmt.Errorf("image %s: %w", reference, err)
		}
		fmt.Fprintln(sum, reference, digest)
	}
	// Where a checkout is makes no difference.
	config := s.testbed.Config
	config.Bin, config.Tools, config.Tree, config.Kubelet, config.APIServer = "", "", "", "", ""
	if err := json.NewEncoder(sum).Encode(config); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// run runs specs that have no result yet.
func (s *side) run(ctx context.Context, all []specs.Spec) (*specs.Results, error) {
	results, err := s.open("results", s.subject)
	if err != nil {
		return nil, err
	}
	if s.retry {
		if err := results.ForgetFailures(all); err != nil {
			return nil, err
		}
	}
	if err := s.fill(ctx, all, results); err != nil {
		return nil, err
	}
	return results, results.WriteJUnit(filepath.Join(s.dir, "junit.xml"), "Kubernetes conformance, "+s.name)
}

// repeat runs specs whose first results differ so many more times. Repeats of other first results are of
// no use.
func (s *side) repeat(ctx context.Context, differing []specs.Spec, first [2]*specs.Results) (again []*specs.Results, err error) {
	subject := s.subject
	for _, spec := range differing {
		subject += " " + first[0].When(spec.Name) + " " + first[1].When(spec.Name)
	}
	for i := range repeats {
		results, err := s.open(fmt.Sprintf("again-%d", i+1), subject)
		if err != nil {
			return nil, err
		}
		again = append(again, results)
	}
	s.progress("%d specs differ, and run %d more times", len(differing), repeats)
	return again, s.fill(ctx, differing, again...)
}

func (s *side) open(name, subject string) (*specs.Results, error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	return specs.Open(filepath.Join(s.dir, name+".json"), subject)
}

// fill runs specs for each of the results that lack them. If there is anything to do, it starts the
// cluster, and removes it in the end.
func (s *side) fill(ctx context.Context, all []specs.Spec, results ...*specs.Results) (err error) {
	missing := 0
	for _, r := range results {
		missing += len(r.Missing(all))
	}
	if missing == 0 {
		return nil
	}
	s.progress("%d of %d specs are to run", missing, len(results)*len(all))
	if err := idle(); err != nil {
		return err
	}
	forget, err := onHost()
	if err != nil {
		return err
	}
	failed := false
	defer func() {
		if (err != nil || failed) && ctx.Err() == nil {
			logs := filepath.Join(s.dir, "components-"+time.Now().UTC().Format("20060102-150405"))
			err = errors.Join(err, s.testbed.SaveLogs(logs))
			s.progress("the logs of all components are kept in %s", logs)
		}
		err = errors.Join(err, s.testbed.Down(context.WithoutCancel(ctx)), forget())
	}()
	if err := s.testbed.Up(ctx); err != nil {
		return err
	}
	for _, r := range results {
		if err := s.suite.Run(ctx, all, s.parallel, r, func(done, all int, others []specs.Spec) {
			s.progress("%d of %d specs have run", done, all)
			for _, spec := range others {
				failed = true
				s.progress("did not pass: %s", spec.Name)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// hostPath is a directory of the host in which pods of specs have their files
// (test/e2e/framework/job/fixtures.go).
const hostPath = "/tmp/job-e2e"

// onHost looks at the host before specs run. forget removes what they have left there.
func onHost() (forget func() error, err error) {
	if _, err := os.Stat(hostPath); !errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, err
	}
	return func() error { return os.RemoveAll(hostPath) }, nil
}

// summary prints how many specs passed.
func (s *side) summary(all []specs.Spec, known specs.Known, results *specs.Results) {
	passed, _ := results.Count(all)
	expected := 0
	for _, spec := range all {
		if _, is := known[spec.Name]; is {
			expected++
		}
	}
	fmt.Printf("%s: %d of %d specs passed, and %d are known to fail; %s\n", s.name, passed, len(all), expected, filepath.Join(s.dir, "junit.xml"))
}
