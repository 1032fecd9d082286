// SPDX-License-Identifier: Apache-2.0

// Package git runs git in a repository, and makes commits that are the same on every
// machine. It knows neither patches nor releases, and no name of this project.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Repo is a repository. git runs in it out of reach of the user's configuration, but for safe.directory.
type Repo struct {
	Dir string
	Env []string
}

// With returns the repository with more of an environment.
func (r Repo) With(env ...string) Repo {
	return Repo{r.Dir, slices.Concat(r.Env, env)}
}

func (r Repo) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{
		"-c", "core.autocrlf=false", "-c", "core.quotePath=false", "-c", "gc.auto=0", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false",
	}, args...)...)
	cmd.Dir = r.Dir
	// A git that is killed leaves its lock behind; one that is told to end does not.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "GIT_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL="+configuration(), "GIT_CONFIG_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0", "GIT_CEILING_DIRECTORIES="+r.Dir+"/..", "LC_ALL=C")
	cmd.Env = append(cmd.Env, r.Env...)
	return cmd
}

// configuration is the path of what git reads in place of the user's configuration: only the directories of others that the user
// trusts. git refuses a repository that someone else owns, such as one that is mounted into a container, and a git that clones from
// one takes safe.directory from a file alone.
func configuration() string {
	file := trusted()
	if file == nil {
		return "/dev/null"
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd())
}

// trusted is a file with safe.directory of the user and of the system; nil if there is none. It has no name, so nothing is left of it.
var trusted = sync.OnceValue(func() *os.File {
	cmd := exec.Command("git", "config", "--null", "--get-all", "safe.directory")
	cmd.Dir = "/" // no repository's configuration
	dirs, err := cmd.Output()
	if err != nil { // it exits with 1 if there are none
		return nil
	}
	text := "[safe]\n"
	for dir := range strings.SplitSeq(strings.TrimSuffix(string(dirs), "\x00"), "\x00") {
		text += "\tdirectory = \"" + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(dir) + "\"\n"
	}
	file, err := os.CreateTemp("", "carry-git-")
	if err != nil {
		return nil
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, os.Remove(file.Name())); err != nil {
		return nil
	}
	return file
})

// Run returns what git printed, without the last newline.
func (r Repo) Run(ctx context.Context, args ...string) (string, error) {
	return r.Input(ctx, "", args...)
}

// Input is Run with something to read.
func (r Repo) Input(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := r.command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if errors.Is(err, exec.ErrNotFound) {
			return "", errors.New("git is not installed, or not on PATH")
		}
		return "", &Error{args[0], strings.TrimSpace(stderr.String()), err}
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

// Error is that of a git which failed. Verb is its first argument, such as apply.
type Error struct {
	Verb, Stderr string
	Err          error
}

func (e *Error) Error() string {
	if e.Stderr == "" {
		return fmt.Sprintf("git %s: %v", e.Verb, e.Err)
	}
	return fmt.Sprintf("git %s: %s", e.Verb, FirstLine(e.Stderr))
}

func (e *Error) Unwrap() error { return e.Err }

// Identity is who made a commit.
type Identity struct{ Name, Email string }

func (i Identity) String() string { return fmt.Sprintf("%s <%s>", i.Name, i.Email) }

// Commit is all that the name of a commit depends on. A commit without a Parent is a
// first one.
type Commit struct {
	Tree, Parent, Message string
	By                    Identity
	Authored, Committed   time.Time
}

// CommitTree makes a commit object without touching the work tree, and returns its name.
func (r Repo) CommitTree(ctx context.Context, c Commit) (string, error) {
	args := []string{"commit-tree", c.Tree}
	if c.Parent != "" {
		args = append(args, "-p", c.Parent)
	}
	return r.With(
		"GIT_AUTHOR_NAME="+c.By.Name, "GIT_AUTHOR_EMAIL="+c.By.Email, "GIT_AUTHOR_DATE="+c.Authored.Format(time.RFC3339),
		"GIT_COMMITTER_NAME="+c.By.Name, "GIT_COMMITTER_EMAIL="+c.By.Email, "GIT_COMMITTER_DATE="+c.Committed.Format(time.RFC3339),
	).Input(ctx, c.Message, args...)
}

// FirstLine is what an error quotes of the output of a command.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
