// SPDX-License-Identifier: Apache-2.0

package output

import (
	"strings"
	"testing"
)

func TestRowsStayOneLineOfPrintableText(t *testing.T) {
	var b strings.Builder
	Row(&b, "plain, \"quoted\" and ünïcode", 7, "a\tb\nc\x1b[31m", "\u202e\xff")
	if got, want := b.String(), "plain, \"quoted\" and ünïcode\t7\ta\\tb\\nc\\x1b[31m\t\\u202e\ufffd\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
