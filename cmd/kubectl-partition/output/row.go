// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// Row writes cells of a table, with tabs between them. Text from manifests, annotations or
// servers cannot break the table or the terminal: what is not printable is escaped.
func Row(w io.Writer, cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, Printable(fmt.Sprint(cell)))
	}
	fmt.Fprintln(w)
}

// Printable returns a text in which Go's escape sequences stand for what is not printable.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
