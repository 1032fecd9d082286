package cli

import (
	"errors"
	"fmt"
	"io"
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
	fmt.Fprintln(w, "error:", err)
	return 2
}
