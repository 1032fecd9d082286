/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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
