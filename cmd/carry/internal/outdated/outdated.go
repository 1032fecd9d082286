// SPDX-License-Identifier: Apache-2.0

// Package outdated compares the known releases with those that upstream has published. It
// must not know what a release is wanted for, and changes nothing.
package outdated

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/mod/semver"
	"golang.org/x/sync/errgroup"

	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// Row is a known release, or a minor version that is newer than all of them.
type Row struct {
	Minor string `json:"minor"`
	// Release is the known one; none for a newer minor version.
	Release string `json:"release,omitempty"`
	// Newest is the newest release of the minor version that can be downloaded. A newer minor version
	// without one has its newest pre-release, or none.
	Newest string `json:"newest,omitempty"`
	// LastMonth is that in which upstream's support ends, such as 2027-10; none if it is not
	// known when the minor version was first released. Ended is set when it is over.
	LastMonth string `json:"lastMonth,omitempty"`
	Ended     bool   `json:"ended"`
	// Refused are the releases newer than Newest that are listed and cannot be downloaded.
	Refused []Refused `json:"refused,omitempty"`
}

// Refused is a release that cannot be downloaded, and the modules that are at fault.
type Refused struct {
	Release string        `json:"release"`
	Modules pins.Refusals `json:"modules"`
}

// Outdated reports whether there is a release that the row should have. Pre-releases do not
// count.
func (r Row) Outdated() bool {
	return r.Newest != "" && r.Newest != r.Release && semver.Prerelease(r.Newest) == ""
}

// Ask returns the rows of newer minor versions and of the known releases, the newest first.
// It finds out what can be downloaded by downloading it, into go's module cache.
func Ask(ctx context.Context, c project.Checkout, now time.Time) ([]Row, error) {
	known, err := c.Releases()
	if err != nil {
		return nil, err
	}
	listed, err := pins.Listed(ctx, c)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, release := range listed {
		minor := project.Minor(release)
		if semver.Compare(minor, project.Minor(known[0])) > 0 && !slices.ContainsFunc(rows, func(r Row) bool { return r.Minor == minor }) {
			rows = append(rows, Row{Minor: minor})
		}
	}
	for _, release := range known {
		rows = append(rows, Row{Minor: project.Minor(release), Release: release})
	}
	// They mostly wait for answers.
	asking, until := errgroup.WithContext(ctx)
	var minors []string
	for i := range rows {
		minors = append(minors, rows[i].Minor)
		asking.Go(func() error { return rows[i].ask(until, listed) })
	}
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	dates, err := pins.FirstReleased(ctx, slices.Compact(minors))
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if released, ok := dates[rows[i].Minor]; ok {
			over := time.Date(released.Year(), released.Month()+project.SupportMonths+1, 1, 0, 0, 0, 0, time.UTC)
			rows[i].LastMonth = over.AddDate(0, -1, 0).Format("2006-01")
			rows[i].Ended = !now.Before(over)
		}
	}
	return rows, nil
}

func (r *Row) ask(ctx context.Context, listed []string) error {
	if err := r.first(ctx, pins.After(r.Release, pins.Finished(r.Minor, listed)), false); err != nil {
		return err
	}
	if r.Newest == "" && r.Release == "" {
		return r.first(ctx, pins.Prereleases(r.Minor, listed), true)
	}
	r.Newest = cmp.Or(r.Newest, r.Release)
	return nil
}

// first takes the first of releases that can be downloaded (pins.Newest), and notes those before it.
func (r *Row) first(ctx context.Context, releases []string, borrow bool) error {
	newest, refused, err := pins.Newest(ctx, releases, borrow)
	r.Newest = newest.Release
	for _, p := range refused {
		r.Refused = append(r.Refused, Refused{p.Release, p.Missing()})
	}
	return err
}

// Table shows the rows, and below the releases that cannot be downloaded.
func Table(rows []Row) string {
	var out, below strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RELEASE\tNEWEST\tSUPPORT\tNEXT")
	for _, r := range rows {
		support, next := "unknown", "-"
		switch {
		case r.Ended:
			support = "ended " + r.LastMonth
		case r.LastMonth != "":
			support = "until " + r.LastMonth
		}
		switch {
		case r.Outdated():
			next = "carry rebase " + r.Newest
		case r.Newest != r.Release:
			next = "carry preview " + r.Newest
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", cmp.Or(r.Release, "-"), cmp.Or(r.Newest, "-"), support, next)
		for _, refused := range r.Refused {
			fmt.Fprintf(&below, "%s is listed but cannot be downloaded: %s\n", refused.Release, refused.Modules)
		}
	}
	table.Flush()
	if below.Len() > 0 {
		out.WriteString("\n" + below.String())
	}
	return out.String()
}
