// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// reasonOfCondition is how the companions tuning and nodepool define a reason of a condition, or settle.go an agreement.
var reasonOfCondition = regexp.MustCompile(`(?m)^\s*(?:const )?(?:[rR]eason\w+\s*|\w+ Agreement )= "(\w+)"$`)

// Users read what a reason means, and what to do, on the pages of these companions.
func TestEachReasonOfNodeTuningIsExplained(t *testing.T) {
	var pages strings.Builder
	for _, page := range []string{"docs/user/tuning.md", "docs/user/nodepools.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(text)
	}
	for _, file := range []string{
		"api/nodepool/v1beta1/types.go", "api/tuned/v1/types.go", "nodepool/controller/render.go", "tuning/settle.go", "tuning/generate.go", "tuning/controller/tuneds.go", "tuning/daemon/status.go",
	} {
		text, err := os.ReadFile(filepath.Join(root, "operators", file))
		if err != nil {
			t.Fatal(err)
		}
		found := reasonOfCondition.FindAllSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("operators/%s has no reason any more", file)
		}
		for _, reason := range found {
			if !strings.Contains(pages.String(), "`"+string(reason[1])+"`") {
				t.Errorf("no page explains the reason %s of operators/%s", reason[1], file)
			}
		}
	}
}
