// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/conformance/images"
	"workload.openshift.io/kubernetes/test/conformance/specs"
	"workload.openshift.io/kubernetes/test/conformance/testbed"
)

// knownText has the conformance specs that cannot pass on a single node.
//
//go:embed known
var knownText string

// conformance is the expression of the names of all conformance specs.
const conformance = `\[Conformance\]`

func (o *options) run(ctx context.Context) error {
	return o.onClusters(ctx, func(all, whole []specs.Spec, known specs.Known, partitioned, _ *side) error {
		if err := runAll(ctx, all, partitioned); err != nil {
			return err
		}
		if err := summaries(all, whole, partitioned); err != nil {
			return err
		}
		return verdict(specs.Judge(all, partitioned.results, known))
	})
}

func (o *options) compare(ctx context.Context) error {
	if o.unpatched == "" {
		return errNoUnpatched
	}
	return o.onClusters(ctx, func(all, whole []specs.Spec, known specs.Known, partitioned, unpatched *side) error {
		if err := runAll(ctx, all, partitioned, unpatched); err != nil {
			return err
		}
		findings, err := partitioned.compare(ctx, unpatched, all, known, nil, "without the series")
		if err != nil {
			return err
		}
		failed, err := partitioned.judge(ctx, all, known)
		if err != nil {
			return err
		}
		if err := summaries(all, whole, partitioned, unpatched); err != nil {
			return err
		}
		return verdict(append(failed, findings...))
	})
}

var errNoUnpatched = errors.New("--upstream-bin is missing: carry build --upstream builds what to compare with")

// onClusters calls a function with the specs and the whole suite, with what is known of them, and with the partitioned
// cluster and the unpatched one. No other process uses the results meanwhile.
func (o *options) onClusters(ctx context.Context, use func(all, whole []specs.Spec, known specs.Known, partitioned, unpatched *side) error) error {
	if err := host.Unfit(); err != nil {
		return err
	}
	// Who uses it is named before anything runs; Up takes it for good.
	_, free, err := host.Take(host.Dir)
	if err == nil {
		err = free()
	}
	if err != nil {
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
	say := sayer()
	program := &specs.Local{Binary: filepath.Join(o.config.Bin, "e2e.test"), Home: home}
	all, whole, err := o.list(ctx, program, conformance)
	if err != nil {
		return err
	}
	known, err := specs.ParseKnown(knownText)
	if err != nil {
		return fmt.Errorf("test/conformance/known: %w", err)
	}
	if o.everything() {
		if err := verdict(known.Unlisted(all)); err != nil {
			return err
		}
	}
	say("making the images that %d specs use", len(all))
	references, err := program.Images(ctx)
	if err != nil {
		return err
	}
	set, err := o.images(ctx, append(references, testbed.Proxy, testbed.CoreDNS))
	if err != nil {
		return err
	}
	if len(set.NotBuilt) > 0 {
		say("not made here, so specs that use them fail: %s", strings.Join(set.NotBuilt, ", "))
	}
	handler, err := set.Handler()
	if err != nil {
		return err
	}
	var sides []*side
	for _, is := range []struct{ name, bin string }{{"partitioned", ""}, {"unpatched", o.unpatched}} {
		s, err := o.side(is.name, "Kubernetes conformance", say)
		if err != nil {
			return err
		}
		config := o.config
		config.Progress = s.progress
		cluster := &onHost{Testbed: testbed.New(config, handler, is.bin)}
		s.bed, s.parallel, s.suite.Program = cluster, o.parallel, program
		s.suite.Args = []string{
			"--kubeconfig=" + host.Kubeconfig, "--kubectl-path=" + filepath.Join(o.config.Bin, "kubectl"), "--repo-root=" + o.config.Tree,
			"--provider=local", "--disable-log-dump", "--e2e-output-dir=" + s.suite.Logs,
		}
		if s.subject, err = cluster.subject(o.cluster, is.bin, set); err != nil {
			return err
		}
		if o.fresh {
			if err := s.forget(all, o.everything()); err != nil {
				return err
			}
		}
		sides = append(sides, s)
	}
	return use(all, whole, known, sides[0], sides[1])
}

// sayer returns a function that prints progress, with the time since the start.
func sayer() func(format string, args ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Since(began).Round(time.Second), fmt.Sprintf(format, args...))
	}
}

// everything returns whether no spec of the suite is left out.
func (o *options) everything() bool { return o.focus == "" && o.skip == "" }

// list returns the specs whose names match the focus, or the expression of the whole suite without one, less those
// that are to be skipped, and the whole suite.
func (o *options) list(ctx context.Context, program specs.Program, suite string) (all, whole []specs.Spec, err error) {
	lister := &specs.Suite{Program: program, Logs: filepath.Join(o.out, "logs")}
	if whole, err = lister.List(ctx, suite, ""); err != nil || o.everything() {
		return whole, whole, err
	}
	focus := cmp.Or(o.focus, suite)
	all, err = lister.List(ctx, focus, o.skip)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no spec has a name that matches %q", focus)
		if o.skip != "" {
			err = fmt.Errorf("%w and not %q", err, o.skip)
		}
	}
	return all, whole, err
}

func (o *options) images(ctx context.Context, references []string) (*images.Set, error) {
	return images.Build(ctx, images.Options{
		Bin: o.config.Bin, Tools: o.config.Tools, Tree: o.config.Tree, Debs: o.debs, Dir: filepath.Join(o.out, "images"), References: references,
	})
}

// onHost is a cluster on this host, which no other process must use.
type onHost struct {
	*testbed.Testbed
	// ours means that the cluster on this host is this one, and forget that hostPath is its own.
	ours, forget bool
	// unlock lets others have one.
	unlock func() error
}

// hostPath is a directory of the host in which pods of specs have their files
// (test/e2e/framework/job/fixtures.go).
const hostPath = "/tmp/job-e2e"

// Up starts the cluster.
func (c *onHost) Up(ctx context.Context) error {
	_, unlock, err := host.Take(host.Dir) // Up removes what is left
	if err != nil {
		return err
	}
	c.ours, c.unlock = true, unlock
	_, err = os.Stat(hostPath)
	c.forget = errors.Is(err, fs.ErrNotExist)
	return c.Testbed.Up(ctx)
}

// Down removes the cluster, and what specs have left on this host.
func (c *onHost) Down(ctx context.Context) error {
	if !c.ours {
		return nil
	}
	err := c.Testbed.Down(ctx)
	if c.forget {
		err = errors.Join(err, os.RemoveAll(hostPath))
	}
	if err != nil {
		return err
	}
	c.ours = false
	return c.unlock()
}

// SaveLogs copies the logs of all components to a directory.
func (c *onHost) SaveLogs(to string) error {
	if !c.ours {
		return nil
	}
	return c.Testbed.SaveLogs(to)
}

// subject identifies all that a result may depend on: the programs, the configuration of the cluster, and
// the images. The command cluster starts the components as this one does, with the same flags.
func (c *onHost) subject(cluster, unpatched string, set *images.Set) (string, error) {
	files := map[string]string{"cluster": cluster}
	config := c.Config
	for label, dir := range map[string]string{"bin": config.Bin, "tools": config.Tools, "unpatched": unpatched} {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", err
		}
		for _, entry := range entries {
			// The sums may name the same programs in another order, and no cluster here has the others.
			if slices.Contains([]string{"SHA256SUMS", "kubeadm", "kwok", "kwok-stages.yaml", nodeTests}, entry.Name()) {
				continue
			}
			files[label+"/"+entry.Name()] = filepath.Join(dir, entry.Name())
		}
	}
	var texts []string
	for _, reference := range slices.Sorted(maps.Keys(set.Images)) {
		digest, err := set.Images[reference].Digest()
		if err != nil {
			return "", fmt.Errorf("image %s: %w", reference, err)
		}
		texts = append(texts, reference+" "+digest.String())
	}
	// Where a checkout is makes no difference.
	config.Bin, config.Tools, config.Tree, config.Kubelet, config.APIServer = "", "", "", "", ""
	text, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	return subject(files, append(texts, string(text), testbed.Addons)...)
}
