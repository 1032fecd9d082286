// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A link of a page to a file of this repository leads to one.
func TestLinksOfPagesLeadToFiles(t *testing.T) {
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
				file, _, _ := strings.Cut(link[1], "#")
				if file == "" || strings.Contains(file, ":") {
					continue
				}
				found++
				if _, err := os.Stat(filepath.Join(filepath.Dir(page), file)); err != nil {
					t.Errorf("%s links to %s: %v", page, link[1], err)
				}
			}
		}
	}
	if found < 200 {
		t.Errorf("the pages have %d links", found)
	}
}
