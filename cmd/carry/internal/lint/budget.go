// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
)

// checkBudget compares the series with the budget, a file of names and the most that each
// may be, for any release. There is a finding for what is more, and for a line that is
// not understood. The series grows by a decision: one that changes the file.
func checkBudget(c project.Checkout) ([]Finding, error) {
	data, err := os.ReadFile(c.Path(project.BudgetFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	releases, err := c.Releases()
	if err != nil {
		return nil, err
	}
	overrides, err := series.Overrides(c)
	if err != nil {
		return nil, err
	}
	most := map[string]int{project.BudgetOverrideFiles: len(overrides)}
	at := map[string]string{}
	for _, release := range releases {
		s, err := series.SizeOf(c, release)
		if err != nil {
			return nil, err
		}
		for name, value := range s.Budget() {
			if value > most[name] || at[name] == "" {
				most[name], at[name] = value, " in "+release
			}
		}
	}
	return compareBudget(project.BudgetFile, data, most, at), nil
}

// compareBudget returns a finding for each line of a budget that is less than what there is at most; at says where that is.
func compareBudget(path string, data []byte, most map[string]int, at map[string]string) []Finding {
	var findings []Finding
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		is, known := most[fields[0]]
		limit, err := 0, errors.New("no number")
		if len(fields) == 2 {
			limit, err = strconv.Atoi(fields[1])
		}
		switch {
		case !known || err != nil:
			findings = append(findings, Finding{path, number, fmt.Sprintf("%q is not a name and its limit", strings.TrimSpace(line))})
		case is > limit:
			findings = append(findings, Finding{path, number, fmt.Sprintf("%s is %d%s; the limit is %d", fields[0], is, at[fields[0]], limit)})
		}
	}
	return findings
}
