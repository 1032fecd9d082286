package verify

import (
	"cmp"
	"fmt"
	"strings"
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
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}
