// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
)

// Matrix shows patches by releases, and below what the tests said.
func Matrix(names []string, results []Result) string {
	rows := [][]string{{"PATCH"}}
	for _, name := range names {
		rows = append(rows, []string{strings.TrimSuffix(name, ".patch")})
	}
	for _, title := range []string{"packages compiled", "upstream's tests passed", "not counted", "our tests passed", "seconds", "result"} {
		rows = append(rows, []string{title})
	}
	for _, v := range results {
		column := []string{v.Release}
		for _, name := range names {
			column = append(column, string(cmp.Or(v.Patches[name], "-")))
		}
		result, seconds := "ok", fmt.Sprint(v.Seconds)
		if v.kept {
			result, seconds = "unchanged", "("+seconds+")"
		}
		if v.Failed != "" {
			result = "FAILED"
		}
		column = append(column, fmt.Sprint(v.Compiled), fmt.Sprint(v.Upstream), fmt.Sprint(len(v.NotCounted)), fmt.Sprint(v.Ours), seconds, result)
		for i, cell := range column {
			rows[i] = append(rows[i], cell)
		}
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // a strings.Builder takes everything
	return out.String()
}
