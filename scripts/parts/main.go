// SPDX-License-Identifier: Apache-2.0

// Command parts runs the tests of a target of make, test or test-all, in parts. Those that need a node mostly wait for
// it. The others run in parallel. Most of them compile and check, with the CPU time that is left. The end-to-end tests need
// root, Linux and cgroups; where one is missing they are skipped, and the summary says so.
//
// CI runs test. It has 90 minutes on two cores and may begin with empty caches, so test is to end within 45. What takes
// longer is part of test-all alone. After a part of test has failed, no further part begins. test-all goes on, since a
// night has room for more than one failure.
//
// A part that has passed for this content of the tree, with the same arguments, is not run again by test-all, whichever
// checkout it passed in. FORCE=1 runs it anyway, and a failure then counts. PART is an expression of the names of the
// parts that are to run; empty means all. MISSING=1 runs nothing, and prints the parts of test-all that have not passed
// for this content. CONTENTS=1 prints all parts, each with its release and the hash of its content. RESULTS are files of
// results of other hosts: what has passed there for this content counts as if it had passed here.
//
// _output/results has a line for each part that ran: time, commit, target, part, result (ok, FAILED, skipped with the
// reason, or ended with the run), seconds, release, and the hash of the content if it is remembered, else "-".
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// results is the file of all results of this checkout.
const results = "_output/results"

// run is a run of a target.
type run struct {
	target, release, oldest string
	// releases are the known ones, the oldest first.
	releases []string
	begun    time.Time
	only     *regexp.Regexp
	// prints is MISSING or CONTENTS if nothing runs.
	prints string
	// passed is the directory of stamps of what has passed.
	passed string
	// unremembered is why nothing that passes is remembered; noNode and noVM are why this host has none.
	unremembered, noNode, noVM string
	work                       string

	mu             sync.Mutex
	asked, stopped bool
	failed         bool
	lines          map[string][]string
	running        map[*exec.Cmd]running
	ending         bool
}

// running is a part that make runs now.
type running struct {
	name, about string
	since       time.Time
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: parts TARGET RELEASE OLDEST")
		os.Exit(2)
	}
	r := &run{target: os.Args[1], release: os.Args[2], oldest: os.Args[3], begun: time.Now(), lines: map[string][]string{}, running: map[*exec.Cmd]running{}}
	if err := r.run(); err != nil {
		fmt.Fprintf(os.Stderr, "make %s: %v\n", r.target, err)
		os.Exit(1)
	}
}

func (r *run) run() error {
	// Of make's flags, some let a part pass that has failed, or run nothing. Variables stay.
	os.Unsetenv("GNUMAKEFLAGS")
	_, variables, found := strings.Cut(os.Getenv("MAKEFLAGS"), " -- ")
	if found {
		variables = " -- " + variables
	}
	os.Setenv("MAKEFLAGS", variables)
	// Files that a strict umask keeps from others are useless to the users of systems that are made of them.
	syscall.Umask(0o022)
	if err := r.prepare(); err != nil {
		return err
	}
	if r.prints != "" {
		r.target = "test-all"
		return r.lane(slices.Concat([]part{binaries}, r.checks(), r.nodes()), nil)
	}
	var err error
	if r.unremembered, err = r.forgotten(); err != nil {
		return err
	}
	if r.unremembered != "" {
		fmt.Fprintf(os.Stderr, "make %s: %s, so what passes is not remembered\n", r.target, r.unremembered)
	}
	if r.work, err = os.MkdirTemp("", "parts-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	r.onSignal()
	// Once, before parallel parts need memory, or install packages.
	if r.noNode, err = output("scripts/why-no-node.sh"); err != nil {
		return err
	}
	r.noVM = noVM()
	if r.noNode == "" {
		// Parallel compilation must not keep a node waiting for its binaries.
		if err := r.part(binaries, false); err != nil {
			return err
		}
	}
	parallel := make(chan error, 1)
	go func() { parallel <- r.lane(r.checks(), nil) }()
	err = r.lane(r.nodes(), sync.OnceValue(func() error { return <-parallel }))
	if err != nil {
		r.end()
		return err
	}
	for _, l := range r.leaves() {
		r.skipped(l.name, fmt.Sprintf("%s; make test-all or make %s runs it", l.because, l.target), "LEFT", "make "+l.target)
	}
	r.summarize()
	if r.only.String() != "" && !r.asked {
		return fmt.Errorf("PART=%s matches none of these parts", r.only)
	}
	if r.failed {
		os.RemoveAll(r.work)
		os.Exit(1)
	}
	return nil
}

// prepare reads the environment and what is known, and forgets what passed too long ago.
func (r *run) prepare() (err error) {
	for _, name := range []string{"MISSING", "CONTENTS"} {
		if os.Getenv(name) != "" {
			r.prints = name
		}
	}
	if r.only, err = regexp.Compile(os.Getenv("PART")); err != nil {
		return fmt.Errorf("PART=%s is not a regular expression: %w", os.Getenv("PART"), err)
	}
	for _, file := range strings.Fields(os.Getenv("RESULTS")) {
		if f, err := os.Open(file); err != nil {
			return fmt.Errorf("RESULTS names %s, which cannot be read: %w", file, err)
		} else if err := f.Close(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("_output", 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir("build/releases")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		r.releases = append(r.releases, entry.Name())
	}
	sorted := exec.Command("sort", "--version-sort")
	sorted.Stdin = strings.NewReader(strings.Join(r.releases, "\n"))
	text, err := outputOf(sorted)
	if err != nil {
		return err
	}
	r.releases = strings.Fields(text)
	cache, err := os.UserCacheDir()
	if err != nil {
		me, err := user.Current() // HOME is not set
		if err != nil {
			return err
		}
		cache = filepath.Join(me.HomeDir, ".cache")
	}
	r.passed = filepath.Join(cache, "workload-partitioning", "passed")
	if err := os.MkdirAll(r.passed, 0o755); err != nil {
		return err
	}
	stamps, err := filepath.Glob(filepath.Join(r.passed, "*", "*"))
	for _, stamp := range stamps {
		if info, err := os.Stat(stamp); err == nil && time.Since(info.ModTime()) > age {
			os.Remove(stamp)
			os.Remove(filepath.Dir(stamp)) // if it is empty
		}
	}
	return err
}

// age is how long what has passed counts.
const age = 14 * 24 * time.Hour

// others are all releases but that of the nodes, the newest first, and that one at last: a verification keeps
// others from its tree.
func (r *run) others() []string {
	others := slices.DeleteFunc(slices.Clone(r.releases), func(release string) bool { return release == r.release })
	slices.Reverse(others)
	return append(others, r.release)
}

// lane runs parts one after the other. await waits for the parts that run in parallel; without it, these are they.
func (r *run) lane(parts []part, await func() error) error {
	for _, p := range parts {
		if p.alone && await != nil {
			if err := await(); err != nil {
				return err
			}
		}
		if p.unless != nil {
			if why := p.unless(r); why != "" {
				r.skipped(p.name, why, "SKIPPED", why)
				continue
			}
		}
		if err := r.part(p, await == nil && r.prints == ""); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if await != nil {
		return await()
	}
	return nil
}

// part runs make. If it runs in parallel, its output is shown only if it fails.
func (r *run) part(p part, parallel bool) error {
	about := r.release
	for _, arg := range p.args {
		if name, release, _ := strings.Cut(arg, "="); name == "RELEASE" || name == "VERIFY" {
			about = release
		}
	}
	content, err := r.content(p.args)
	if err != nil {
		return err
	}
	stamp := r.stamp(content, p.args)
	if err := r.believe(p.name, about, content, stamp); err != nil {
		return err
	}
	before, _ := os.ReadFile(stamp)
	switch {
	case r.prints == "CONTENTS":
		fmt.Printf("%s\t%s\t%s\n", p.name, about, content)
		return nil
	case r.prints == "MISSING":
		if before == nil {
			fmt.Println(p.name)
		}
		return nil
	case p.name != binaries.name && !r.selects(p.name):
		r.say("NOT SELECTED", p.name, "")
		return nil
	case r.target == "test-all" && before != nil && !p.anyway && os.Getenv("FORCE") == "":
		r.say("ok", p.name, "passed before: "+strings.TrimSpace(string(before)))
		return nil
	case r.stops(false):
		r.say("NOT RUN", p.name, "")
		return nil
	}
	forgotten := r.unremembered
	if forgotten == "" {
		if forgotten, err = r.forgotten(p.args...); err != nil {
			return err
		}
	}
	took, err := r.make(p, about, parallel)
	if err != nil {
		os.Remove(stamp) // of an earlier run
		r.record(p.name, "FAILED", took, about, "-")
		fmt.Fprintf(os.Stderr, "=== %s FAILED after %.0f s\n", p.name, took.Seconds())
		r.say("FAILED", p.name, fmt.Sprintf("after %.0f s", took.Seconds()))
		r.stops(r.target == "test" || p.name == binaries.name)
		return nil
	}
	fmt.Fprintf(os.Stderr, "=== %s ok after %.0f s\n", p.name, took.Seconds())
	r.say("ok", p.name, fmt.Sprintf("%.0f s", took.Seconds()))
	if forgotten == "" {
		if forgotten, err = r.forgotten(p.args...); err != nil {
			return err
		}
	}
	if forgotten == "" {
		if forgotten, err = r.otherGo(p.args); err != nil {
			return err
		}
	}
	if again, err := r.content(p.args); err != nil {
		return err
	} else if again != content {
		forgotten = "the work tree has changed meanwhile"
	}
	if forgotten != "" {
		r.record(p.name, "ok", took, about, "-")
		fmt.Fprintf(os.Stderr, "=== %s is not remembered: %s\n", p.name, forgotten)
		return nil
	}
	if err := writeStamp(stamp, fmt.Sprintf("%s, %.0f s\n", now(), took.Seconds())); err != nil {
		return err
	}
	r.record(p.name, "ok", took, about, content)
	return nil
}

// make runs a part in a separate session, so that end can end it with all that it has started. Linux gives each
// session its share of the CPUs, which is small for parallel parts that do not wait, and nice counts where sessions have no shares.
func (r *run) make(p part, about string, parallel bool) (took time.Duration, err error) {
	args := append([]string{"--default-signal=INT,QUIT", "make", "--no-print-directory", "RELEASE=" + r.release}, p.args...)
	if p.anyway || os.Getenv("FORCE") != "" {
		args = append(args, "FRESH=1")
	}
	command, how := exec.Command("env", args...), ""
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if parallel {
		how = ", in parallel"
		if !p.waits {
			command = exec.Command("sh", append([]string{"-c", `echo 19 2>/dev/null >/proc/self/autogroup; exec nice -n 19 env "$@"`, "parts"}, args...)...)
		}
		log, err := os.CreateTemp(r.work, "log-")
		if err != nil {
			return 0, err
		}
		defer log.Close()
		command.Stdout, command.Stderr = log, log
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	fmt.Fprintf(os.Stderr, "=== %s%s\n", p.name, how)
	begun := time.Now()
	r.mu.Lock()
	if !r.ending {
		if err = command.Start(); err == nil {
			r.running[command] = running{p.name, about, begun}
		}
	}
	ending := r.ending
	r.mu.Unlock()
	if ending {
		select {} // end says what became of the run
	}
	if err == nil {
		err = command.Wait()
	}
	r.mu.Lock()
	if ending = r.ending; !ending {
		delete(r.running, command)
	}
	r.mu.Unlock()
	if ending {
		select {}
	}
	if err != nil && parallel {
		if text, err := os.ReadFile(command.Stdout.(*os.File).Name()); err == nil {
			os.Stderr.Write(text)
		}
	}
	return time.Since(begun), err
}

// onSignal ends the run at an interrupt.
func (r *run) onSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		got := <-signals
		r.end()
		os.RemoveAll(r.work)
		if got == os.Interrupt {
			os.Exit(130)
		}
		os.Exit(143)
	}()
}

// end ends what runs. gotestsum and go wait for the tests after an interrupt, and these remove what they have started.
func (r *run) end() {
	r.mu.Lock()
	r.ending = true
	r.mu.Unlock()
	for command, each := range r.running {
		r.record(each.name, "ended", time.Since(each.since), each.about, "-")
		if syscall.Kill(-command.Process.Pid, syscall.SIGINT) != nil {
			_ = command.Process.Signal(os.Interrupt)
		}
	}
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		alive := false
		for command := range r.running {
			alive = alive || syscall.Kill(-command.Process.Pid, 0) == nil
		}
		if !alive {
			return
		}
	}
}

// selects reports whether PART names a part.
func (r *run) selects(name string) bool {
	selected := r.only.MatchString(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = r.asked || selected
	return selected
}

// stops reports whether no further part begins, from now on if it is to stop.
func (r *run) stops(stop bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = r.stopped || stop
	return r.stopped
}

// skipped says that a part does not run.
func (r *run) skipped(name, why, kind, short string) {
	switch {
	case r.prints == "MISSING":
		fmt.Println(name)
	case r.prints == "":
		r.selects(name)
		r.record(name, "skipped: "+why, 0, r.release, "-")
		r.say(kind, name, short)
	}
}

// say adds a line to the summary.
func (r *run) say(kind, name, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || kind == "FAILED"
	r.lines[kind] = append(r.lines[kind], strings.TrimRight(fmt.Sprintf("%-8s %-56s %s", kind, name, text), " "))
}

// summarize prints what failed first, then what was skipped, in one screen. The reasons of what make test leaves to
// make test-all are in the results.
func (r *run) summarize() {
	fmt.Printf("=== make %s of %s, in %d minutes\n", r.target, r.release, int(time.Since(r.begun).Minutes()))
	for _, kind := range []string{"FAILED", "NOT RUN", "SKIPPED", "ok", "LEFT"} {
		for _, line := range r.lines[kind] {
			fmt.Println(line)
		}
	}
	if n := len(r.lines["NOT SELECTED"]); n > 0 {
		fmt.Printf("PART=%s selects none of %d further parts\n", r.only, n)
	}
	if len(r.lines["LEFT"]) > 0 {
		fmt.Printf("What is LEFT runs in make test-all, or by its own target. %s says why.\n", results)
	}
}
