// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// documentedMetric is a row of the first table in docs/user/metrics.md: a name, a kind that a
// note may follow, and labels that their values may follow.
var documentedMetric = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge)[^|]*\\| (.*?) ?\\| (?:kubelet|kube-apiserver) \\|$")

// TestMetricsAreDocumented compares the documentation's table of metrics, from which alerts and
// the dashboard are tested, with what the code registers.
func TestMetricsAreDocumented(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs", "user", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range documentedMetric.FindAllStringSubmatch(string(data), -1) {
		var labels []string
		for _, label := range regexp.MustCompile("(?:^|, )`([a-z_]+)`").FindAllStringSubmatch(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(row[3], ""), -1) {
			labels = append(labels, label[1])
		}
		documented = append(documented, fmt.Sprint(row[1], labels))
	}
	registered := append(metricsIn(t, filepath.Join(root, filepath.FromSlash(plugin), "metrics", "metrics.go")),
		metricsIn(t, filepath.Join(root, "pkg", "kubelet", "managed", "metrics.go"))...)
	slices.Sort(documented)
	slices.Sort(registered)
	if !slices.Equal(documented, registered) {
		t.Errorf("docs/user/metrics.md has\n%s\nand the code registers\n%s", strings.Join(documented, "\n"), strings.Join(registered, "\n"))
	}
}

// metricsIn returns name and labels of each metric that a file makes with NewDesc or
// NewCounterVec. The names begin with the file's constant subsystem.
func metricsIn(t *testing.T, path string) (metrics []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var subsystem string
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ValueSpec:
			if node.Names[0].Name == "subsystem" {
				subsystem = texts(node.Values[0])[0]
			}
		case *ast.CallExpr:
			function, is := node.Fun.(*ast.SelectorExpr)
			if is && function.Sel.Name == "NewDesc" {
				metrics = append(metrics, fmt.Sprint(subsystem, texts(node.Args[0])[0], texts(node.Args[2])))
			}
			if is && function.Sel.Name == "NewCounterVec" {
				metrics = append(metrics, fmt.Sprint(subsystem, texts(node.Args[0])[0], texts(node.Args[1])))
			}
		}
		return true
	})
	return metrics
}

// texts returns the string literals of an expression.
func texts(expr ast.Expr) (texts []string) {
	ast.Inspect(expr, func(node ast.Node) bool {
		if literal, is := node.(*ast.BasicLit); is && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}
