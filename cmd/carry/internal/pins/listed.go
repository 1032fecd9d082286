package pins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// listed is what `go list -m -json` prints of a module.
type listed struct {
	Path, Version string
	Versions      []string
	Error         *struct{ Err string }
}

// Listed returns the releases that the go command lists, pre-releases among them, the newest
// first. A module's list may have gaps, since a proxy names what it was asked for, so a release
// counts that any module of the newest known release lists. Not each of them can be had.
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

// versions lists those of modules. A module whose list is refused has none. Versions that are
// retracted are listed, too: go finds them out from the newest version, which is perhaps one
// that cannot be had.
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

// Newest fetches the first of releases of which enough can be had, and returns those before it
// of which it cannot. The release is zero if there is none.
func Newest(ctx context.Context, releases []string, enough func(Published) bool) (newest Published, refused []Published, err error) {
	for _, release := range releases {
		p, err := Fetch(ctx, release)
		if err != nil {
			return Published{}, nil, err
		}
		if enough(p) {
			return p, refused, nil
		}
		refused = append(refused, p)
	}
	return Published{}, refused, nil
}

// Whole says that a release can be had with all that a binary needs.
func Whole(p Published) bool { return len(p.Missing()) == 0 }

// Finished are those of a minor version among the releases listed that are no pre-releases.
func Finished(minor string, listed []string) []string {
	return slices.DeleteFunc(slices.Clone(listed), func(l string) bool { return project.Minor(l) != minor || semver.Prerelease(l) != "" })
}
