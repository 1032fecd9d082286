// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workload.openshift.io/partition"
)

var update = flag.Bool("update", false, "write what is stale, in place of reporting it")

// root is the project's directory, as tests see it.
var root = filepath.Join("..", "..")

// The lines in docs/user/pods.md between which the table of reasons stands.
const (
	beginReasons = "<!-- Made from the core's table of reasons by: go test ./scripts/lint -update -->"
	endReasons   = "<!-- The end of what is made. -->"
)

// TestReasonsAreDocumented compares the documentation's table of reasons with the core's,
// from which it is made.
func TestReasonsAreDocumented(t *testing.T) {
	path := filepath.Join(root, "docs", "user", "pods.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(data), beginReasons+"\n")
	table, after, ends := strings.Cut(rest, endReasons+"\n")
	if !begins || !ends {
		t.Fatalf("%s has no lines %q and %q, between which the table stands", path, beginReasons, endReasons)
	}
	want := reasonsTable(partition.Rules())
	switch {
	case table == want:
	case *update:
		if err := os.WriteFile(path, []byte(before+beginReasons+"\n"+want+endReasons+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of reasons in %s is stale; run: go test ./scripts/lint -update\nit has\n%s\nand the core says\n%s", path, table, want)
	}
}

// reasonsTable is the Markdown table of the rules.
func reasonsTable(rules []partition.Rule) string {
	var table strings.Builder
	table.WriteString("| reason | condition | soft | hard |\n|---|---|---|---|\n")
	for _, rule := range rules {
		condition, soft := rule.Condition, rule.Soft.String()
		if rule.StaticPods != "" {
			condition += " (static pods: " + rule.StaticPods + ")"
		}
		if rule.SoftNote != "" {
			soft += ", " + rule.SoftNote
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", rule.Reason, condition, soft, rule.Hard)
	}
	return table.String()
}
