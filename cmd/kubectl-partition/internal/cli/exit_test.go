// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

func TestExitCodeAndWhatIsPrinted(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code int
		want string
	}{
		"nothing is wrong":           {nil, 0, ""},
		"a command has printed it":   {fmt.Errorf("as it says: %w", errFound), 1, ""},
		"an error":                   {errors.New("no such file"), 2, "error: no such file\n"},
		"an error of a hostile file": {errors.New("name \x1b[2J\n::warning::x"), 2, "error: name \\x1b[2J\nerror: ::warning::x\n"},
		"several errors":             {errors.Join(errors.New("a"), errors.New("b")), 2, "error: a\nerror: b\n"},
		"an error with a suggestion": {errors.New("unknown command\n\nDid you mean this?\n\taudit\n"), 2, "error: unknown command\nerror: Did you mean this?\nerror: audit\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if code := ExitCode(test.err, &out); code != test.code || out.String() != test.want {
				t.Errorf("the exit code is %d and it prints %q, want %d and %q", code, out.String(), test.code, test.want)
			}
		})
	}
}
