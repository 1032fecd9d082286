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
