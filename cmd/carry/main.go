// SPDX-License-Identifier: Apache-2.0

// Command carry keeps the patch series: it materialises an upstream release as a
// git repository, applies the series to it, exports it again, checks it, and
// builds and tests the result. It knows git, Go modules and patches, and nothing of
// workload partitioning.
//
// Its packages, from those that know least:
//
//	disk     files that are written atomically
//	git      a repository, and commits that are the same everywhere
//	process  commands that start others
//	project  the names of this project, and its checkout
//	pins     the Go modules that a release consists of
//	outdated which of the releases are not upstream's newest
//	patch    the form of a patch, and where its hunks fit
//	series   the directory of patches
//	tree     a release's repository; conflict.go says what happens on a conflict
//	build    compiling a tree
//	check    type-checking it
//	lint     the rules of the series
//	verify   whether the series is right for a release
//	rebase   another release
//	preview  one that is only tried
//	exporttree  a repository to give away
//	cli      the commands
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"workload.openshift.io/kubernetes/cmd/carry/internal/cli"
)

func main() {
	allowNewerGo()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cli.Command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "carry:", cli.Explain(err))
		code := 1
		if exit := (cli.ExitError{}); errors.As(err, &exit) {
			code = exit.Code
		}
		os.Exit(code)
	}
}

// allowNewerGo lets go commands start a newer version of themselves where a release demands one: modules of
// the next minor version mostly do. Debian's go, and that of many images, would refuse (GOTOOLCHAIN=local). A
// version that the user has chosen stays, and so does the installed one with FORCE_HOST_GO, as in upstream's
// hack/lib/golang.sh.
func allowNewerGo() {
	if chosen := os.Getenv("GOTOOLCHAIN"); os.Getenv("FORCE_HOST_GO") == "" && (chosen == "" || chosen == "local") {
		os.Setenv("GOTOOLCHAIN", "auto")
	}
}
