// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// source is what a bundle is made of.
type source struct {
	// commit is the checkout's, and date is its date.
	commit string
	date   time.Time
	// previous is the tag of the last version before it; empty means that there is none.
	previous string
	// releases are upstream's, the newest first.
	releases []string
}

// examine checks version, checkout and releases.
func (o Options) examine(ctx context.Context) (s source, err error) {
	if o.Version == "" || semver.Canonical(o.Version) != o.Version {
		return s, fmt.Errorf("version %q is not a semantic version such as v0.1.0", o.Version)
	}
	if s.releases, err = o.chooseReleases(); err != nil {
		return s, err
	}
	// What an outer repository ignores would be clean, and have its commit.
	top, err := o.output(ctx, "rev-parse", "--show-prefix")
	if err != nil {
		return s, err
	}
	if top != "" {
		return s, fmt.Errorf("%s is not the root of a checkout: it is %s in another one", o.Checkout, top)
	}
	changes, err := o.output(ctx, "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return s, err
	}
	if changes != "" {
		return s, fmt.Errorf("%s has uncommitted changes, so version %s would not be reproducible; see git status", o.Checkout, o.Version)
	}
	shallow, err := o.output(ctx, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return s, err
	}
	if shallow == "true" {
		return s, fmt.Errorf("%s lacks commits, so the list of changes would be incomplete: git fetch --unshallow --tags", o.Checkout)
	}
	all, err := o.output(ctx, "tag", "--list", "v*")
	if err != nil {
		return s, err
	}
	if slices.Contains(strings.Fields(all), o.Version) {
		return s, fmt.Errorf("version %s: a tag of this name already exists", o.Version)
	}
	before, err := o.output(ctx, "tag", "--list", "--merged", "HEAD", "v*")
	if err != nil {
		return s, err
	}
	for tag := range strings.FieldsSeq(before) {
		if semver.Canonical(tag) == tag && semver.Compare(tag, s.previous) > 0 {
			s.previous = tag
		}
	}
	if semver.Compare(o.Version, s.previous) <= 0 {
		return s, fmt.Errorf("version %s is not newer than %s, the last one before this commit", o.Version, s.previous)
	}
	if s.commit, err = o.output(ctx, "rev-parse", "HEAD"); err != nil {
		return s, err
	}
	date, err := o.output(ctx, "log", "-1", "--format=%cI", s.commit)
	if err != nil {
		return s, err
	}
	s.date, err = time.Parse(time.RFC3339, date)
	return s, err
}

// chooseReleases returns the releases that are wanted, the newest first. Each must be known.
func (o Options) chooseReleases() ([]string, error) {
	const dir = "build/releases"
	entries, err := os.ReadDir(filepath.Join(o.Checkout, filepath.FromSlash(dir)))
	if err != nil {
		return nil, err
	}
	var known []string
	for _, entry := range entries {
		if semver.IsValid(entry.Name()) {
			known = append(known, entry.Name())
		}
	}
	semver.Sort(known)
	slices.Reverse(known)
	for _, name := range o.Releases {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("release %q is not known; %s has %s", name, dir, strings.Join(known, ", "))
		}
	}
	if len(o.Releases) > 0 {
		known = slices.DeleteFunc(known, func(name string) bool { return !slices.Contains(o.Releases, name) })
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("%s has no release", dir)
	}
	return known, nil
}

// git runs git in the checkout. A user's configuration may have it print the signature of each commit.
func (o Options) git(ctx context.Context, to io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "log.showSignature=false"}, args...)...)
	cmd.Dir, cmd.Stdout = o.Checkout, to
	var says bytes.Buffer
	cmd.Stderr = &says
	if err := cmd.Run(); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(says.String()), "\n")
		return errors.Join(ctx.Err(), fmt.Errorf("git in %s: %w: %s", o.Checkout, err, line))
	}
	return nil
}

// output runs git in the checkout, and returns what it prints without the last newline.
func (o Options) output(ctx context.Context, args ...string) (string, error) {
	var out strings.Builder
	err := o.git(ctx, &out, args...)
	return strings.TrimSuffix(out.String(), "\n"), err
}
