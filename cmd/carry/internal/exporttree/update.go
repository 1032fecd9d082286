// SPDX-License-Identifier: Apache-2.0

package exporttree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// earlier is a repository that was exported before. All that is known of it stands in the
// trailers of its commits, so a clone of it does as well.
type earlier struct {
	git.Repo
	// head is its last commit, of release, and onto the commit below its first.
	head, release, onto string
	// checkout is set if onto is of a checkout, and not of a release's modules.
	checkout bool
	// By names of patches: the digest that the last export had, the commits, and the subject.
	digests  map[string]string
	commits  map[string][]string
	subjects map[string]string
}

// record is what a commit's message says of an export.
type record struct {
	id, subject, release, onto, patch, digest string
	ours                                      bool
}

// records reads the commits that git log finds, the last first.
func (e *earlier) records(ctx context.Context, which ...string) ([]record, error) {
	format := "--format=%H%x00%P%x00%ae%x00%ce%x00%s"
	for _, key := range []string{releaseTrailer, ontoTrailer, patchTrailer, digestTrailer} {
		format += "%x00%(trailers:key=" + key + ",valueonly)"
	}
	log, err := e.Run(ctx, append([]string{"log", format + "%x01"}, which...)...)
	if err != nil {
		return nil, err
	}
	var found []record
	for entry := range strings.SplitSeq(log, "\x01") {
		fields := strings.Split(entry, "\x00")
		if len(fields) < 9 {
			break // after the last one
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		r := record{id: fields[0], subject: fields[4], release: fields[5], onto: fields[6], patch: fields[7], digest: fields[8]}
		r.ours = fields[2] == project.Identity.Email && fields[3] == project.Identity.Email && !strings.Contains(fields[1], " ") && r.release != "" && r.onto != ""
		found = append(found, r)
	}
	return found, nil
}

// read walks from the last commit to the one below the first export.
func (e *earlier) read(ctx context.Context) error {
	last, err := e.records(ctx, "-1")
	if err != nil {
		return untouched("%s is not empty, and is not an export: %w", e.Dir, err)
	}
	unknown := func(r record) error {
		return untouched("%s has the commit %.12s (%s), which does not belong to an export; move it to another branch, and rebase that afterwards", e.Dir, r.id, r.subject)
	}
	if !last[0].ours {
		if some, err := e.Run(ctx, "log", "-1", "--format=%h", "--committer="+project.Identity.Email); err != nil || some == "" {
			return errors.Join(err, untouched("%s is another repository, not an export", e.Dir))
		}
		return unknown(last[0])
	}
	e.head, e.release, e.onto = last[0].id, last[0].release, last[0].onto
	if _, err := e.Run(ctx, "merge-base", "--is-ancestor", e.onto, e.head); err != nil {
		return untouched("%s lacks the commit %.12s, on which its export is based; fetch the whole history", e.Dir, e.onto)
	}
	author, err := e.Run(ctx, "log", "-1", "--format=%ae", e.onto)
	if err != nil {
		return err
	}
	e.checkout = author != project.Identity.Email
	all, err := e.records(ctx, e.onto+".."+e.head)
	if err != nil {
		return err
	}
	for _, r := range all {
		if !r.ours {
			return unknown(r)
		}
		if r.patch == "" {
			continue
		}
		if _, newer := e.digests[r.patch]; !newer {
			e.digests[r.patch] = r.digest
			e.subjects[r.patch] = strings.TrimPrefix(strings.TrimPrefix(r.subject, project.RevertPrefix), project.CarryPrefix)
		}
		e.commits[r.patch] = append(e.commits[r.patch], r.id)
	}
	return nil
}

// mayBecome says why another export cannot go on top.
func (e *earlier) mayBecome(ctx context.Context, release string, o Options) error {
	if project.Minor(release) != project.Minor(e.release) || semver.Compare(release, e.release) < 0 {
		return untouched("%s has an export of %s, and %s is not a newer release of %s; export it to another directory", o.To, e.release, release, project.Minor(e.release))
	}
	if o.Onto == "" {
		return nil
	}
	head, err := (git.Repo{Dir: o.Onto}).Run(ctx, "rev-parse", "HEAD")
	if err == nil && head != e.onto {
		return untouched("%s has an export on %.12s, and %s is at %.12s; export to another directory", o.To, e.onto, o.Onto, head)
	}
	return nil
}

// change is a file that differs, as git update-index reads it.
type change struct{ path, entry string }

// bring commits what differs between the earlier export and a new one: upstream, this
// project's packages, each patch, and what is generated. A file that two patches change
// goes with the first of them, and the second may have an empty commit, which names it.
func (e *earlier) bring(ctx context.Context, t *tree.Tree, now *composed) error {
	if _, err := e.Run(ctx, "fetch", "-q", "--no-tags", now.Dir, "HEAD"); err != nil {
		return err
	}
	raw, err := e.Run(ctx, "diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", e.head, now.head)
	if err != nil {
		return err
	}
	left := map[string]change{}
	fields := strings.Split(strings.TrimSuffix(raw, "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		meta := strings.Fields(fields[i]) // :mode mode sha sha status
		left[fields[i+1]] = change{fields[i+1], fmt.Sprintf("%s %s\t%s", meta[1], meta[3], fields[i+1])}
	}
	if len(left) == 0 {
		t.Say("nothing has changed since %.12s", e.head)
		return nil
	}
	index, err := os.MkdirTemp("", "carry-index-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(index)
	// Its commits are made as those of a new export are, but for the index.
	next := *now
	next.Repo, next.head, next.commits = e.With("GIT_INDEX_FILE="+path.Join(index, "index")), e.head, nil
	if _, err := next.Run(ctx, "read-tree", e.head); err != nil {
		return err
	}
	commit := func(message string, named bool, goes func(path string) bool) error {
		var entries strings.Builder
		for _, path := range slices.Sorted(maps.Keys(left)) {
			if goes(path) {
				entries.WriteString(left[path].entry + "\x00")
				delete(left, path)
			}
		}
		if entries.Len() == 0 && !named {
			return nil
		}
		if _, err := next.Input(ctx, entries.String(), "update-index", "-z", "--index-info"); err != nil {
			return err
		}
		id, err := next.Run(ctx, "write-tree")
		if err != nil {
			return err
		}
		next.head, err = next.CommitTree(ctx, git.Commit{Tree: id, Parent: next.head, Message: next.signed(message), By: project.Identity, Authored: project.PatchDate, Committed: next.committed})
		next.commits = append(next.commits, next.head)
		return err
	}
	type patchStep struct {
		message string
		files   map[string]bool
	}
	var steps []patchStep
	ofPatches := map[string]bool{}
	touched := func(name string) (map[string]bool, error) {
		files := map[string]bool{}
		commits := e.commits[name]
		if p, ok := now.patches[name]; ok {
			commits = append(slices.Clone(commits), p.commit)
		}
		for _, id := range commits {
			out, err := e.Run(ctx, "diff-tree", "-r", "-z", "--name-only", "--no-commit-id", id)
			if err != nil {
				return nil, err
			}
			for file := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
				files[file], ofPatches[file] = true, true
			}
		}
		return files, nil
	}
	const gone = "none"
	for _, name := range slices.Sorted(maps.Keys(e.digests)) {
		if _, stays := now.patches[name]; stays || e.digests[name] == gone {
			continue
		}
		files, err := touched(name)
		if err != nil {
			return err
		}
		steps = append(steps, patchStep{fmt.Sprintf("%s%s\n\nThe series no longer has this patch.\n\n%s: %s\n%s: %s", project.RevertPrefix, e.subjects[name], patchTrailer, name, digestTrailer, gone), files})
	}
	for _, id := range now.commits {
		for name, p := range now.patches {
			if p.commit != id || e.digests[name] == p.digest {
				continue
			}
			files, err := touched(name)
			if err != nil {
				return err
			}
			steps = append(steps, patchStep{fmt.Sprintf("%s%s\n%s: %s\n%s: %s", project.CarryPrefix, strings.TrimSpace(p.Message), patchTrailer, name, digestTrailer, p.digest), files})
		}
	}
	ours := func(file string) bool {
		return file == vendorCycles || slices.ContainsFunc([]string{project.RootModule, project.CoreModule}, func(module string) bool {
			return strings.HasPrefix(file, staged(module)+"/")
		})
	}
	others := fmt.Sprintf("UPSTREAM: Kubernetes %s\n\nWhat differs from %s.", now.release, e.release)
	if now.checkout {
		others = project.RevertPrefix + "what " + project.RevertsFile + " names by now"
	}
	if err := commit(others, false, func(file string) bool { return !ofPatches[file] && !ours(file) && !generated(file) }); err != nil {
		return err
	}
	upstream := next.head
	if err := commit(project.CarryPrefix+"bring "+project.RootModule+" and "+project.CoreModule+" up to date", false, ours); err != nil {
		return err
	}
	differs := maps.Clone(left)
	for _, s := range steps {
		maps.DeleteFunc(s.files, func(file string, _ bool) bool { _, is := differs[file]; return !is })
		if err := commit(s.message, len(s.files) > 0, func(file string) bool { return s.files[file] }); err != nil {
			return err
		}
	}
	if err := commit(project.DropPrefix+updateVendor, false, generated); err != nil {
		return err
	}
	if _, err := e.Run(ctx, "reset", "-q", "--keep", next.head); err != nil {
		return err
	}
	t.Say("new commits in %s: %d", e.Dir, len(next.commits))
	if now.checkout || now.release == e.release {
		return nil
	}
	return e.tag(ctx, t, now.release, upstream)
}

// tag names the commit with a release's files: a build takes its version from there (hack/lib/version.sh). An
// existing tag, such as upstream's own, stays.
func (e *earlier) tag(ctx context.Context, t *tree.Tree, release, commit string) error {
	if _, err := e.Run(ctx, "rev-parse", "--verify", "-q", "refs/tags/"+release); err == nil {
		if _, err := e.Run(ctx, "merge-base", "--is-ancestor", "refs/tags/"+release, "HEAD"); err != nil {
			t.Say("%s has a tag %s that is not in its history, so a build says an earlier version; to change that: git -C %[1]s tag -f %[2]s %.12[3]s", e.Dir, release, commit)
		}
		return nil
	}
	_, err := e.Run(ctx, "tag", release, commit)
	return err
}

// generated says whether upstream's script writes a file.
func generated(file string) bool {
	return strings.HasPrefix(file, "vendor/") || strings.HasPrefix(file, "LICENSES/") ||
		slices.Contains([]string{"go.mod", "go.sum", "go.work", "go.work.sum"}, path.Base(file))
}
