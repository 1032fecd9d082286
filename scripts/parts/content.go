// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// irrelevant returns an expression of the paths that neither the commands of a target nor what they build and run
// read. A path belongs here only if that is plain: what is missing costs time, and what is wrong costs the truth.
func irrelevant(target string) *regexp.Regexp {
	scripts := func(names string) string {
		return `[.]ci/|Makefile$|[A-Z]+[.]md$|docs/dev/|scripts/(` + names + `)[.]sh$|scripts/(lint|parts)/|build/(krew|lint|gotestsum)/`
	}
	const (
		all = `check|generate|gofmt|images|ldflags|lint|operators-[a-z]+|release|reproducible|settings|test|tree-changes|update|vouched|why-no-node`
		// Pages from which no test of a node reads anything.
		pages = `docs/user/(admission|alerts|companions|cpupolicy(-console)?|images|kubectl-partition-[a-z]+|limits|metrics|namespaces|objectives|openshift(-release)?|pinning-file|pods|security|support|tools|troubleshooting)[.]md$|docs/user/noise[.]svg$`
		// What of the companions the plugin does not import.
		companions  = `operators/((chart|cmd|companion|deploy|e2e|foreign|internal|mirror|nodeclient|operand|rollout)/|[a-z]+/(action|agentpod|controller|daemon|executor)/|.*_test[.]go$)`
		conformance = `build/coredns/|test/conformance/`
		// What carry does not do when it makes a tree and builds it.
		carry = `cmd/carry/internal/(check|exporttree|lint|outdated|preview|rebase|verify)/`
	)
	text := scripts(all)
	beside := text + "|" + pages + `|cmd/.*_test[.]go$|` + companions + `|build/(controller-gen|kubevirt)/|test/classes/|test/e2e/soak_bench_test[.]go$|test/e2e/internal/soak/`
	is := func(prefix string) bool { return strings.HasPrefix(target, prefix) }
	var paths string
	switch {
	case target == "verify" || target == "preview":
		paths = beside + "|" + conformance + `|docs/|cluster/|cmd/images/|cmd/kubectl-partition/|node/|test/`
	case target == "rebase-test":
		paths = text + "|" + conformance + `|docs/|cmd/images/|operators/|build/(controller-gen|kubevirt)/|test/`
	case target == "reproducible":
		// What it packs is not of Debian's packages, nor of this project's own programs.
		paths = scripts(strings.Replace(all, "reproducible|", "", 1)) + `|docs/|cmd/.*_test[.]go$|cmd/kubectl-partition/|cluster/|operators/|build/(coredns|controller-gen|kubevirt)/|patches/openshift/|test/`
	case target == "e2e":
		paths = beside + "|" + conformance + "|" + carry + `|patches/openshift/`
	case is("conformance-") || target == "node-compare":
		paths = beside + "|" + carry + `|patches/openshift/|cmd/kubectl-partition/|node/|test/e2e/`
	case target == "e2e-plugin": // these are tests below cmd
		paths = text + "|" + conformance + "|" + carry + "|cmd/images/|" + companions + `|patches/openshift/|test/e2e/`
	case is("e2e-"):
		paths = beside + "|" + conformance + "|" + carry + `|cmd/images/|patches/openshift/`
	case target == "plugin-elsewhere":
		paths = text + `|docs/|cmd/(carry|images)/|patches/|test/`
	case target == "bench-classes":
		paths = text + `|docs/|cmd/|patches/|test/(conformance|e2e|workloadpartitioning)/`
	case is("operators-"):
		paths = scripts(strings.Replace(all, "operators-[a-z]+|", "", 1)) + "|" + conformance + "|" + carry + `|patches/openshift/`
	default:
		return regexp.MustCompile(`^$`)
	}
	return regexp.MustCompile("^(" + paths + ")")
}

// ofRelease is a path of what pins a release.
var ofRelease = regexp.MustCompile(`^build/releases/([^/]+)/`)

// content names what make does for these arguments: a hash of all files of the work tree that matter, also of
// those that are not committed, and of the commands that make would run.
func (r *run) content(args []string) (string, error) {
	index, err := os.CreateTemp("_output", "index.")
	if err != nil {
		return "", err
	}
	index.Close()
	defer os.Remove(index.Name())
	from, err := output("git", "rev-parse", "--git-path", "index")
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(index.Name(), data, 0o600); err != nil {
		return "", err
	}
	git := func(args ...string) (string, error) {
		command := exec.Command("git", args...)
		command.Env = append(os.Environ(), "GIT_INDEX_FILE="+index.Name())
		return outputOf(command)
	}
	if _, err := git("add", "--all"); err != nil {
		return "", err
	}
	tree, err := git("write-tree")
	if err != nil {
		return "", err
	}
	files, err := git("ls-tree", "-r", tree)
	if err != nil {
		return "", err
	}
	commands, err := r.commands(args)
	if err != nil {
		return "", err
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		return "", err
	}
	// These are not in what make would print.
	commands += strings.Join(regexp.MustCompile(`(?m)^(SHELL|export [A-Z]|ifndef).*$`).FindAllString(string(makefile), -1), "\n")
	// What runs on nodes reads nothing of a release that its commands do not name.
	node := regexp.MustCompile(`^(e2e|conformance-|node-compare$|operators-)`).MatchString(args[0])
	paths := irrelevant(args[0])
	var hashed strings.Builder
	for line := range strings.Lines(files + "\n") {
		_, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if paths.MatchString(path) {
			continue
		}
		if release := ofRelease.FindStringSubmatch(path); node && release != nil && !strings.Contains(commands, release[1]) {
			continue
		}
		hashed.WriteString(line)
	}
	hash := exec.Command("git", "hash-object", "--stdin")
	hash.Stdin = strings.NewReader(hashed.String() + commands + "\n")
	return outputOf(hash)
}

// commands are those that make would run, without the path of this checkout.
func (r *run) commands(args []string) (string, error) {
	here, err := filepath.Abs(".")
	if err == nil {
		here, err = filepath.EvalSymlinks(here)
	}
	if err != nil {
		return "", err
	}
	text, err := output("make", append([]string{"--no-print-directory", "--dry-run", "RELEASE=" + r.release}, args...)...)
	return strings.ReplaceAll(text, here, "."), err
}

// forgotten says why what passes now would not be what the content names, which has neither trees nor Go nor the
// environment. It looks at the trees of the release and of those that the arguments name. Those of others may be in the
// middle of a verification, and have been looked at before all parts: without arguments it looks at all.
func (r *run) forgotten(args ...string) (string, error) {
	if os.Getenv("FORCE_HOST_GO") != "" {
		return "FORCE_HOST_GO selects this host's Go, not the one that upstream released with", nil
	}
	settings, err := output("scripts/settings.sh")
	if err != nil {
		return "", err
	}
	// GOFLAGS of the environment is in make's commands, and so in the content.
	if found := slices.DeleteFunc(strings.Fields(settings), func(name string) bool { return name == "GOFLAGS" && os.Getenv(name) != "" }); len(found) > 0 {
		return strings.Join(found, " and ") + " may change what is compiled, and images are made without", nil
	}
	named := append(strings.Split(strings.Join(args, "="), "="), r.release)
	for _, release := range r.releases {
		if len(args) > 0 && !slices.Contains(named, release) {
			continue
		}
		changes, err := output("scripts/tree-changes.sh", release)
		if err != nil {
			return "", err
		}
		if changes != "" {
			return "_output/" + release + "/kubernetes has uncommitted changes", nil
		}
	}
	return "", nil
}

// otherGo says so if another Go than upstream's has compiled: carry takes the installed one if it cannot fetch that,
// and writes it down.
func (r *run) otherGo(args []string) (string, error) {
	commands, err := r.commands(args)
	if err != nil {
		return "", err
	}
	for _, release := range r.releases {
		if release != r.release && !strings.Contains(commands, release) {
			continue
		}
		file := "_output/" + release + "/kubernetes/.go-version"
		version, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, dir := range []string{"bin", "race-bin", "fips-bin", "upstream-bin"} {
			sums := "_output/" + release + "/" + dir + "/SHA256SUMS"
			text, err := os.ReadFile(sums)
			if err != nil {
				continue
			}
			if head, _, _ := strings.Cut(string(text), "\n"); !strings.Contains(head, "built with go"+strings.TrimSpace(string(version))+" ") {
				return fmt.Sprintf("%s names another Go than %s; remove its directory once that can be fetched", sums, file), nil
			}
		}
	}
	return "", nil
}
