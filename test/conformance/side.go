// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"workload.openshift.io/kubernetes/test/conformance/specs"
)

// repeats is how often specs that differ run again on both sides at most: when more than half of these runs end alike,
// the others would change nothing.
const repeats = 3

// bed is what specs run on.
type bed interface {
	// Up starts it, and Down removes every trace of it.
	Up(context.Context) error
	Down(context.Context) error
	// SaveLogs copies what its components have printed to a directory.
	SaveLogs(to string) error
}

// side is one of those that are compared, and what became of the specs on it.
type side struct {
	name  string
	bed   bed
	suite specs.Suite
	// subject identifies what is tested.
	subject  string
	dir      string
	title    string
	progress func(format string, args ...any)
	parallel int
	retry    bool
	// results are those of run.
	results *specs.Results
}

// side returns one whose files are in a directory of its name. Its suite has no program yet. The title of
// its JUnit file says which version was tested, or compared with: that of the patched kubelet.
func (o *options) side(name, title string, say func(format string, args ...any)) (*side, error) {
	output, err := exec.Command(filepath.Join(o.config.Bin, "kubelet"), "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("kubelet --version: %w", err)
	}
	version := strings.TrimPrefix(strings.TrimSpace(string(output)), "Kubernetes ")
	s := &side{name: name, title: fmt.Sprintf("%s of %s, %s", title, version, name), dir: filepath.Join(o.out, name), retry: o.retry}
	s.suite.Logs = filepath.Join(s.dir, "logs")
	s.progress = func(format string, args ...any) { say("%s: %s", name, fmt.Sprintf(format, args...)) }
	s.suite.Say = s.progress
	return s, nil
}

// forget forgets results. With everything, also logs and reports.
func (s *side) forget(all []specs.Spec, everything bool) error {
	if everything {
		return os.RemoveAll(s.dir)
	}
	results, err := s.open("results", s.subject)
	if err != nil {
		return err
	}
	return results.Forget(all)
}

// subject identifies what a result depends on: files, by their names for it, and texts.
func subject(files map[string]string, texts ...string) (string, error) {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, err := os.Open(files[name])
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, name)
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	}
	for _, text := range texts {
		fmt.Fprintln(sum, text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// run runs specs that have no result yet.
func (s *side) run(ctx context.Context, all []specs.Spec) (err error) {
	if s.results, err = s.open("results", s.subject); err != nil {
		return err
	}
	if s.results.Replaced > 0 {
		s.progress("the results of %d specs are of other programs or images, or of another configuration: they are replaced", s.results.Replaced)
	}
	if s.retry {
		if err := s.results.ForgetFailures(all); err != nil {
			return err
		}
	}
	return s.fill(ctx, all, s.results)
}

// report is the file in which others read what became of the specs.
func (s *side) report() string { return filepath.Join(s.dir, "junit.xml") }

func (s *side) removeReport() error {
	if err := os.Remove(s.report()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// runAll runs specs on each side, one side after another: they share the CPUs of this host, and specs give up when
// their pods are slow.
func runAll(ctx context.Context, all []specs.Spec, sides ...*side) error {
	// Until all have ended, there is no report of any.
	for _, s := range sides {
		if err := s.removeReport(); err != nil {
			return err
		}
	}
	for _, s := range sides {
		if err := s.run(ctx, all); err != nil {
			return err
		}
	}
	return nil
}

// judge returns the findings of specs that compare has not judged, since the same became of them on all sides:
// they must pass, unless they are known not to. Two sides may fail by chance, so those that did not pass run some
// more times on this one.
func (s *side) judge(ctx context.Context, all []specs.Spec, known specs.Known) (specs.Findings, error) {
	same := slices.DeleteFunc(slices.Clone(all), func(spec specs.Spec) bool { return s.results.Settled(spec.Name) })
	failed := slices.DeleteFunc(slices.Clone(same), func(spec specs.Spec) bool {
		return !s.results.Has(spec.Name) || s.results.Passed(spec.Name) || known[spec.Name] != ""
	})
	var findings specs.Findings
	if len(failed) > 0 {
		again, err := s.repeat(ctx, s, failed, "did not pass")
		if err != nil {
			return nil, err
		}
		s.results.Settle(failed, again)
		findings = specs.JudgeAgain(failed, again)
		same = slices.DeleteFunc(same, func(spec specs.Spec) bool { return slices.Contains(failed, spec) })
	}
	return append(specs.Judge(same, s.results, known), findings...), nil
}

// compare compares what became of specs on a side and on another, on which they have run. Those that differ
// run some more times on both, unless they are expected to pass on the other side alone. known are those that
// cannot pass on either; without says what the other side is without.
func (s *side) compare(ctx context.Context, other *side, all []specs.Spec, known specs.Known, expected specs.Differences, without string) (specs.Findings, error) {
	differing := specs.Differing(all, s.results, other.results)
	findings := expected.Same(all, differing)
	differing = slices.DeleteFunc(differing, func(spec specs.Spec) bool {
		is := expected.Explain(spec, s.results, other.results)
		if is {
			fmt.Printf("%s\n    is known to differ: %s\n    %s\n", spec.Name, expected[spec.Name].Reason, s.results.Why(spec.Name))
		}
		return is
	})
	sides := []*side{s, other}
	again := make([][]*specs.Results, len(sides))
	if len(differing) > 0 {
		for i := range sides {
			var err error
			if again[i], err = sides[i].repeat(ctx, sides[1-i], differing, "differ"); err != nil {
				return nil, err
			}
		}
		for i := range sides {
			sides[i].results.Settle(differing, again[i])
		}
	}
	fmt.Printf("%s and %s: %d specs differed unexpectedly at first\n", s.name, other.name, len(differing))
	for _, spec := range differing {
		fmt.Printf("%s\n    %s\n", spec.Name, specs.Times(spec, again[0], again[1], without))
	}
	return append(findings, specs.Compare(differing, again[0], again[1], known, without)...), nil
}

// repeat runs specs some more times, since their first results are not what they should be compared with those of a
// side, which may be this one; why says how. Repeats of other first results are of no use.
func (s *side) repeat(ctx context.Context, other *side, differing []specs.Spec, why string) (again []*specs.Results, err error) {
	subject := s.subject
	for _, spec := range differing {
		subject += " " + s.results.When(spec.Name) + " " + other.results.When(spec.Name)
	}
	for i := range repeats {
		results, err := s.open(fmt.Sprintf("again-%s-%d", other.name, i+1), subject)
		if err != nil {
			return nil, err
		}
		again = append(again, results)
	}
	s.progress("%d specs %s, and run up to %d more times", len(differing), why, repeats)
	return again, s.fill(ctx, differing, again...)
}

func (s *side) open(name, subject string) (*specs.Results, error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	return specs.Open(filepath.Join(s.dir, name+".json"), subject)
}

// fill runs specs for each of the results that lack them, until it is known what mostly becomes of them. If there is
// anything to do, it starts what they run on, and removes it in the end.
func (s *side) fill(ctx context.Context, all []specs.Spec, results ...*specs.Results) (err error) {
	missing := 0
	for _, r := range results {
		missing += len(r.Missing(specs.Undecided(all, results)))
	}
	if missing == 0 {
		return nil
	}
	s.progress("%d of %d specs are to run", missing, len(results)*len(all))
	failed := false
	defer func() {
		if (err != nil || failed) && ctx.Err() == nil {
			logs := filepath.Join(s.dir, "components-"+time.Now().UTC().Format("20060102-150405"))
			// Hours of results do not go with a log.
			if err := s.bed.SaveLogs(logs); err != nil {
				s.progress("some logs of components could not be kept: %v", err)
			}
			s.progress("what is known of all that failed is in %s", s.dir)
		}
		err = errors.Join(err, s.bed.Down(context.WithoutCancel(ctx)))
	}()
	if err := s.bed.Up(ctx); err != nil {
		return err
	}
	for _, r := range results {
		if err := s.suite.Run(ctx, specs.Undecided(all, results), s.parallel, r, func(done, all int, others []specs.Spec) {
			s.progress("%d of %d specs have run", done, all)
			for _, spec := range others {
				failed = failed || !r.Skipped(spec.Name)
				s.progress("did not pass: %s", spec.Name)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// summaries prints what became of specs. The reports are about the whole suite, of which those may be a part: they
// also have what earlier runs did.
func summaries(all, whole []specs.Spec, sides ...*side) error {
	for _, s := range sides {
		title := s.title
		if missing := len(s.results.Missing(whole)); missing > 0 {
			title += fmt.Sprintf(", %d of %d specs", len(whole)-missing, len(whole))
		}
		if err := s.results.WriteJUnit(whole, s.report(), title); err != nil {
			return err
		}
		passed, others := s.results.Count(all)
		skipped := 0
		for _, spec := range others {
			if s.results.Skipped(spec.Name) {
				skipped++
			}
		}
		fmt.Printf("%s: %d of %d specs passed, and %d skipped themselves; they took %s; %s\n", s.name, passed, len(all), skipped,
			s.results.Took(all).Round(time.Second), s.report())
	}
	return nil
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
