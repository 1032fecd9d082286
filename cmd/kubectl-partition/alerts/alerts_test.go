// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
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
