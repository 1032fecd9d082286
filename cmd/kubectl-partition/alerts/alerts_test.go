// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/operators/alert"
)

// TestRunbooks compares the page to which the alerts lead with the catalogue: a row of its table
// and a heading for each, in the same order.
func TestRunbooks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "user", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows, headings, wantRows, wantHeadings []string
	for _, row := range regexp.MustCompile("(?m)^\\| \\[`([A-Za-z]+)`\\]\\(#[a-z]+\\) \\| ([a-z]+) \\|").FindAllStringSubmatch(string(page), -1) {
		rows = append(rows, row[1]+" "+row[2])
	}
	for _, heading := range regexp.MustCompile("(?m)^## (.+)$").FindAllStringSubmatch(string(page), -1) {
		headings = append(headings, heading[1])
	}
	for _, a := range Alerts() {
		wantRows = append(wantRows, a.Name+" "+a.Severity)
		wantHeadings = append(wantHeadings, Prefix+a.Name)
	}
	if !slices.Equal(rows, wantRows) {
		t.Errorf("the table has\n%q\nwant\n%q", rows, wantRows)
	}
	if !slices.Equal(headings, wantHeadings) {
		t.Errorf("the headings are\n%q\nwant\n%q", headings, wantHeadings)
	}
}

// TestAMetricAndItsAlertStandInOnePlace goes through what each companion brings: it looks at its own metrics, nobody else
// does, and a page for users has them.
func TestAMetricAndItsAlertStandInOnePlace(t *testing.T) {
	pages := map[string]string{}
	paths, err := filepath.Glob(filepath.Join("..", "..", "..", "docs", "user", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[path] = string(page)
	}
	uses := func(set alert.Set) (names []string) {
		exprs := []string{}
		for _, a := range set.Alerts {
			exprs = append(exprs, a.Expr)
		}
		for _, row := range set.Rows {
			for _, panel := range row.Panels {
				exprs = append(exprs, panel.Expr)
			}
		}
		for _, metric := range selector.FindAllStringSubmatch(strings.Join(exprs, "\n"), -1) {
			names = append(names, metric[1])
		}
		return names
	}
	nodes := uses(alert.Set{Alerts: catalogue, Rows: rows})
	for _, set := range Companions() {
		names := set.Names()
		for _, name := range uses(set) {
			if !slices.Contains(names, name) {
				t.Errorf("%s is not among the metrics %q, beside which its alert stands", name, names)
			}
		}
		for _, name := range names {
			if slices.Contains(nodes, name) {
				t.Errorf("%s is a companion's metric, and its alert stands elsewhere", name)
			}
			documented := false
			for _, page := range pages {
				documented = documented || strings.Contains(page, "`"+name+"`") || strings.Contains(page, "`"+name+"{")
			}
			if !documented {
				t.Errorf("no page in docs/user has the metric %s", name)
			}
		}
	}
}
