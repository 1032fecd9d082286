// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// stamp is the file that says that a part has passed for this content. make test runs some parts with fewer tests,
// and these are not the same part.
func (r *run) stamp(content string, args []string) string {
	return filepath.Join(r.passed, content+"-"+r.release, regexp.MustCompile(`[^[:alnum:].]`).ReplaceAllString(strings.Join(args, " "), "-"))
}

func writeStamp(name, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
}

// record adds a line to the results. Without one, nothing but a version lacks it.
func (r *run) record(name, result string, took time.Duration, about, content string) {
	commit, err := output("git", "rev-parse", "--short", "HEAD")
	changes, changed := output("git", "status", "--porcelain")
	if changes != "" {
		commit += "+changes"
	}
	line := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%.0f\t%s\t%s", now(), commit, r.target, name, result, took.Seconds(), about, content)
	if err := errors.Join(err, changed, addResult(line)); err != nil {
		fmt.Fprintf(os.Stderr, "%s has no line of %s: %v\n", results, name, err)
	}
}

func addResult(line string) error {
	file, err := os.OpenFile(results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, line)
	return errors.Join(err, file.Close())
}

// believe looks in RESULTS for a part, keeps its line, and leaves a stamp where there is none. A line is believed
// once: what fails here later has not passed.
func (r *run) believe(name, about, content, stamp string) error {
	since, best := time.Now().Add(-age).UTC().Format(time.RFC3339), ""
	for _, file := range strings.Fields(os.Getenv("RESULTS")) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			f := strings.Split(line, "\t") // time, commit, target, part, result, seconds, release, content
			if len(f) == 8 && f[3] == name && f[4] == "ok" && f[6] == about && f[7] == content && f[0] >= since {
				best = max(best, line)
			}
		}
	}
	known, err := os.ReadFile(results)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if best == "" || strings.Contains("\n"+string(known), "\n"+best+"\n") {
		return nil
	}
	if _, err := os.Stat(stamp); err != nil {
		f := strings.Split(best, "\t")
		at, err := time.Parse(time.RFC3339, f[0])
		if err != nil {
			return fmt.Errorf("RESULTS: %w", err)
		}
		if err := errors.Join(writeStamp(stamp, fmt.Sprintf("%s, %s s, by RESULTS\n", f[0], f[5])), os.Chtimes(stamp, at, at)); err != nil {
			return err
		}
	}
	return addResult(best)
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// output is what a command prints, without the newlines at the end.
func output(name string, args ...string) (string, error) {
	return outputOf(exec.Command(name, args...))
}

func outputOf(command *exec.Cmd) (string, error) {
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
	}
	return strings.TrimRight(string(text), "\n"), err
}
