package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// identity makes and dates every commit, so that the same series gives the same
// commits. Authors are those of this project; its own history names them.
const (
	identityName  = "workload partitioning"
	identityEmail = "carry@workload.openshift.io"
)

// patchDate is the author date of every patch.
var patchDate = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// git runs git in a tree, out of reach of the user's configuration.
type git struct {
	dir string
	env []string
}

func (g git) with(env ...string) git {
	return git{g.dir, append(append([]string{}, g.env...), env...)}
}

func (g git) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{
		"-c", "core.autocrlf=false", "-c", "core.quotePath=false", "-c", "gc.auto=0", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false",
	}, args...)...)
	cmd.Dir = g.dir
	// A git that is killed leaves its lock behind; one that is told to end does not.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "GIT_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0", "GIT_CEILING_DIRECTORIES="+g.dir+"/..", "LC_ALL=C")
	cmd.Env = append(cmd.Env, g.env...)
	return cmd
}

// run returns what git printed, without the last newline.
func (g git) run(ctx context.Context, args ...string) (string, error) {
	return g.input(ctx, "", args...)
}

func (g git) input(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := g.command(ctx, args...)
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
		return "", &gitError{args[0], strings.TrimSpace(stderr.String()), err}
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

type gitError struct {
	verb, stderr string
	err          error
}

func (e *gitError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("git %s: %v", e.verb, e.err)
	}
	return fmt.Sprintf("git %s: %s", e.verb, firstLine(e.stderr))
}

func (e *gitError) Unwrap() error { return e.err }

// commit makes a commit object without touching the work tree.
func (g git) commit(ctx context.Context, treeID, parent, message string, authored, committed time.Time) (string, error) {
	args := []string{"commit-tree", treeID}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	return g.with(
		"GIT_AUTHOR_NAME="+identityName, "GIT_AUTHOR_EMAIL="+identityEmail, "GIT_AUTHOR_DATE="+authored.Format(time.RFC3339),
		"GIT_COMMITTER_NAME="+identityName, "GIT_COMMITTER_EMAIL="+identityEmail, "GIT_COMMITTER_DATE="+committed.Format(time.RFC3339),
	).input(ctx, message, args...)
}

func digest(parts ...[]byte) string {
	hash := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(hash, "%d:", len(part))
		hash.Write(part)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
