// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// listed is what `go list -m -json` prints of a module.
type listed struct {
	Path, Version string
	Versions      []string
	Time          time.Time
	Error         *struct{ Err string }
}

// Listed returns the releases that the go command lists, pre-releases among them, the newest
// first. A module's list may have gaps, since a proxy only names versions that someone requested
// from it. So a release counts if any module of the newest known release lists it. Not all of them
// can be downloaded. It is an error if all lists are refused.
func Listed(ctx context.Context, c project.Checkout) ([]string, error) {
	known, err := c.Releases()
	if err != nil {
		return nil, err
	}
	newest, err := Read(c, known[0])
	if err != nil {
		return nil, err
	}
	lists, err := versions(ctx, slices.Sorted(maps.Keys(newest.Modules)))
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(lists, func(l listed) bool { return l.Error == nil }) {
		return nil, fmt.Errorf("the versions of none of %d modules can be listed, so GOPROXY is wrong or refuses everything; of %s: %s", len(lists), lists[0].Path, git.FirstLine(lists[0].Error.Err))
	}
	var releases []string
	for _, list := range lists {
		for _, version := range list.Versions {
			release := version
			if rest, staged := strings.CutPrefix(version, "v0"); staged {
				release = "v1" + rest
			}
			if project.ReleaseForm.MatchString(release) {
				releases = append(releases, release)
			}
		}
	}
	semver.Sort(releases)
	slices.Reverse(releases)
	return slices.Compact(releases), nil
}

// versions lists those of modules. A module whose list is refused has none. Retracted versions
// are listed, too: go learns of retractions from the newest version, which may be one that
// cannot be downloaded.
func versions(ctx context.Context, modules []string) ([]listed, error) {
	lists, err := goJSON[listed](ctx, append([]string{"list", "-m", "-e", "-retracted", "-versions", "-json=Path,Versions,Error"}, modules...)...)
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		if list.Error != nil && !notPublished.MatchString(list.Error.Err) {
			return nil, fmt.Errorf("the versions of %s cannot be listed: %s", list.Path, git.FirstLine(list.Error.Err))
		}
	}
	return lists, nil
}

// Newest fetches the first of releases that can be downloaded completely, and returns those before it. With borrow, a module
// may be of an older version (Published.Borrow). The release is zero if there is none.
func Newest(ctx context.Context, releases []string, borrow bool) (newest Published, refused []Published, err error) {
	for _, release := range releases {
		p, err := Fetch(ctx, release)
		if err == nil && borrow && p.HasUpstream() {
			err = p.Borrow(ctx)
		}
		if err != nil {
			return Published{}, nil, err
		}
		if p.Whole() {
			return p, refused, nil
		}
		refused = append(refused, p)
	}
	return Published{}, refused, nil
}

// Finished are those of a minor version among the releases listed that are not pre-releases.
func Finished(minor string, listed []string) []string {
	return slices.DeleteFunc(slices.Clone(listed), func(l string) bool { return project.Minor(l) != minor || semver.Prerelease(l) != "" })
}

// Prereleases are those of a minor version among the releases listed.
func Prereleases(minor string, listed []string) []string {
	return slices.DeleteFunc(slices.Clone(listed), func(l string) bool { return project.Minor(l) != minor || semver.Prerelease(l) == "" })
}

// After are the releases newer than one; all are if that is none.
func After(release string, releases []string) []string {
	return slices.DeleteFunc(slices.Clone(releases), func(r string) bool { return semver.Compare(r, release) <= 0 })
}

// FirstReleased returns when the first release of each minor version was, of those for which
// that is known.
func FirstReleased(ctx context.Context, minors []string) (map[string]time.Time, error) {
	args := []string{"list", "-m", "-e", "-json=Path,Version,Time,Error"}
	for _, minor := range minors {
		args = append(args, project.UpstreamModule+"@"+minor+".0")
	}
	found, err := goJSON[listed](ctx, args...)
	if err != nil {
		return nil, err
	}
	dates := map[string]time.Time{}
	for _, m := range found {
		if m.Error == nil {
			dates[project.Minor(m.Version)] = m.Time
		} else if _, err := refusal(Module{Path: m.Path, Version: m.Version, Error: m.Error.Err}); err != nil {
			return nil, err
		}
	}
	return dates, nil
}
