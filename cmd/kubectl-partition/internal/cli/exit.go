// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
)

// errFound ends a command that has printed what it found: exit code 1, and no further word.
var errFound = errors.New("something was found")

// ExitCode returns the exit code for the error of a command, and prints the error where the
// command has not said already what is wrong.
func ExitCode(err error, w io.Writer) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFound):
		return 1
	}
	// Errors quote files and objects of others, and some are several errors.
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintln(w, "error:", output.Printable(line))
		}
	}
	return 2
}
