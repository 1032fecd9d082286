// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// Published is the part of a release that can be downloaded: its modules are in go's module cache.
type Published struct {
	Release   string
	goVersion string
	modules   []Module
	// Refused are the modules that cannot be downloaded: upstream's own, or staging modules that its
	// go.mod asks for.
	Refused Refusals
}

// Refusal is a module that cannot be downloaded, and why.
type Refusal struct {
	Module  string `json:"module"`
	Version string `json:"version"`
	Reason  string `json:"reason"`
}

func (r Refusal) String() string { return fmt.Sprintf("%s %s: %s", r.Module, r.Version, r.Reason) }

// Refusals are those of one release.
type Refusals []Refusal

func (r Refusals) String() string {
	var words []string
	for _, one := range r {
		words = append(words, one.String())
	}
	return strings.Join(words, "; ")
}

// Missing are the refused modules that a binary needs.
func (p Published) Missing() Refusals {
	return slices.DeleteFunc(slices.Clone(p.Refused), func(r Refusal) bool { return slices.Contains(project.UnneededModules, r.Module) })
}

// Whole reports whether all that a binary needs can be downloaded, and HasUpstream whether upstream's own module can.
func (p Published) Whole() bool       { return len(p.Missing()) == 0 }
func (p Published) HasUpstream() bool { return len(p.modules) > 0 }

// notPublished matches go's errors for a module version that is not available to anyone, as
// opposed to one that could not be downloaded just now. One without a checksum is such a version, too: go
// trusts the first download of a module to its checksum database alone. So is one that
// demands a version of Go that cannot be downloaded.
var notPublished = regexp.MustCompile(`\b(403 Forbidden|404 Not Found|410 Gone|unknown revision|requires go >= [0-9a-z.]+)`)

// refusal returns why a module cannot be downloaded. An error that says nothing of the module, such
// as that of a network, is returned as one.
func refusal(m Module) (Refusal, error) {
	why := notPublished.FindString(m.Error)
	if why == "" {
		return Refusal{}, fmt.Errorf("%s@%s cannot be downloaded: %s", m.Path, m.Version, git.FirstLine(m.Error))
	}
	if strings.Contains(m.Error, "/lookup/") { // golang.org/design/25530-sumdb
		why = "no checksum is available (" + why + ")"
	}
	return Refusal{m.Path, m.Version, why}, nil
}

// Fetch downloads upstream's module and its staging modules at a release. go checks each
// against its checksum database, since no go.sum knows it yet. Without upstream's, the staging
// modules are not asked for.
func Fetch(ctx context.Context, release string) (Published, error) {
	p := Published{Release: release}
	if !project.ReleaseForm.MatchString(release) {
		return p, fmt.Errorf("%q is not a release of Kubernetes, such as v1.37.1", release)
	}
	if err := p.fetch(ctx, project.UpstreamModule+"@"+release); err != nil || len(p.Refused) > 0 {
		return p, err
	}
	data, err := os.ReadFile(filepath.Join(p.modules[0].Dir, "go.mod"))
	if err != nil {
		return p, err
	}
	file, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		return p, err
	}
	p.goVersion = file.Go.Version
	var staged []string
	for _, replace := range file.Replace {
		if strings.HasPrefix(replace.New.Path, "./staging/src/") {
			staged = append(staged, replace.Old.Path+"@"+StagingVersion(release))
		}
	}
	return p, p.fetch(ctx, staged...)
}

// StagingVersion is the version of staging modules at a release, v0.37.1 for v1.37.1.
func StagingVersion(release string) string { return "v0" + strings.TrimPrefix(release, "v1") }

// fetch adds modules, and those that are refused.
func (p *Published) fetch(ctx context.Context, modules ...string) error {
	fetched, err := goJSON[Module](ctx, append([]string{"mod", "download", "-json"}, modules...)...)
	if err != nil {
		return err
	}
	if len(fetched) != len(modules) {
		return fmt.Errorf("go mod download: %d of %d modules are missing", len(modules)-len(fetched), len(modules))
	}
	for _, m := range fetched {
		if m.Error == "" {
			p.modules = append(p.modules, m)
			continue
		}
		refused, err := refusal(m)
		if err != nil {
			return err
		}
		p.Refused = append(p.Refused, refused)
	}
	return nil
}

// Borrow replaces each missing module by its newest earlier version that can be downloaded, so that
// the rest of the release can at least be tried. A module without such a version stays refused.
func (p *Published) Borrow(ctx context.Context) error {
	missing := p.Missing()
	if len(missing) == 0 {
		return nil
	}
	var paths []string
	for _, r := range missing {
		paths = append(paths, r.Module)
	}
	lists, err := versions(ctx, paths)
	if err != nil {
		return err
	}
	for _, list := range lists {
		at := slices.IndexFunc(p.Refused, func(r Refusal) bool { return r.Module == list.Path })
		older := slices.DeleteFunc(list.Versions, func(v string) bool { return semver.Compare(v, p.Refused[at].Version) >= 0 })
		semver.Sort(older)
		for _, version := range slices.Backward(older) {
			one := Published{Release: p.Release}
			if err := one.fetch(ctx, list.Path+"@"+version); err != nil {
				return err
			}
			if len(one.modules) > 0 {
				p.modules = append(p.modules, one.modules...)
				p.Refused = slices.Delete(p.Refused, at, at+1)
				break
			}
		}
	}
	return nil
}

// Write writes the pins of a release into a directory of the checkout: a go.mod with upstream
// and each of its staging modules that can be downloaded, and the go.sum that go's checksum database
// vouches for. The tree leaves out the others, which are named. It is an error if that database was
// not asked. go.mod is the last file written: where it is, both are.
func (p Published) Write(ctx context.Context, c project.Checkout, dir string) error {
	if err := vouched(ctx, p); err != nil {
		return err
	}
	var mod, sum strings.Builder
	fmt.Fprintf(&mod, "module %s/%s\n\ngo %s\n\nrequire (\n\t%s %s\n", project.RootModule, filepath.ToSlash(dir), p.goVersion, project.UpstreamModule, p.Release)
	for _, m := range slices.SortedFunc(slices.Values(p.modules), func(a, b Module) int { return cmp.Compare(a.Path, b.Path) }) {
		if m.Path != project.UpstreamModule {
			fmt.Fprintf(&mod, "\t%s %s\n", m.Path, m.Version)
		}
		fmt.Fprintf(&sum, "%s %s %s\n%[1]s %[2]s/go.mod %[4]s\n", m.Path, m.Version, m.Sum, m.GoModSum)
	}
	for _, r := range p.Refused {
		fmt.Fprintf(os.Stderr, "%s: the tree leaves out %s\n", p.Release, r)
	}
	mod.WriteString(")\n")
	if err := disk.Write(c.Path(dir, "go.sum"), []byte(sum.String())); err != nil {
		return err
	}
	return disk.Write(c.Path(dir, "go.mod"), []byte(mod.String()))
}

// Upstream returns the directory of upstream's own module at a release that need not be pinned. It is an
// error if go asks no checksum database about it.
func Upstream(ctx context.Context, release string) (string, error) {
	p := Published{Release: release}
	if err := p.fetch(ctx, project.UpstreamModule+"@"+release); err != nil {
		return "", err
	}
	if len(p.Refused) > 0 {
		return "", fmt.Errorf("%s cannot be downloaded", p.Refused)
	}
	return p.modules[0].Dir, vouched(ctx, p)
}

// vouched returns an error if go has asked no checksum database about one of the modules: the pins would be
// whatever a proxy has sent.
func vouched(ctx context.Context, p Published) error {
	out, err := exec.CommandContext(ctx, "go", "env", "-json", "GOSUMDB", "GONOSUMDB").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	var env struct{ GOSUMDB, GONOSUMDB string }
	if err := json.Unmarshal(out, &env); err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	for _, m := range p.modules {
		if env.GOSUMDB == "off" || module.MatchPrefixPatterns(env.GONOSUMDB, m.Path) {
			return fmt.Errorf("%s is not used, since no checksum database vouches for what is downloaded of %s: GOSUMDB is %q and GONOSUMDB, or GOPRIVATE, %q; unset them", p.Release, m.Path, env.GOSUMDB, env.GONOSUMDB)
		}
	}
	return nil
}

// goJSON runs a go command that prints a JSON object for each module, outside of any module.
// The object of a module that cannot be downloaded says so; the command does not fail.
func goJSON[T any](ctx context.Context, args ...string) ([]T, error) {
	dir, err := os.MkdirTemp("", "carry-pin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// It fails if one module cannot be downloaded; what it prints says which.
	out, runErr := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var found []T
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var one T
		if err := decoder.Decode(&one); err != nil {
			return nil, fmt.Errorf("go %s: %w", strings.Join(args[:2], " "), err)
		}
		found = append(found, one)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args[:2], " "), cmp.Or(runErr, errors.New("it printed no module")), git.FirstLine(stderr.String()))
	}
	return found, nil
}
