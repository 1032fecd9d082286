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

package testbed

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestATextIsFoundWhereverWritesPartIt(t *testing.T) {
	const text = "[SynchronizedBeforeSuite] PASSED [9.1 seconds]\nmore\n[SynchronizedBeforeSuite] PASSED\n"
	before := strings.Repeat("[SynchronizedBeforeSuite] \n", 100)
	for size := 1; size < 60; size++ {
		var written bytes.Buffer
		found := 0
		w := &watch{to: &written, text: []byte(setUpPassed), found: func() { found++ }}
		// A reader of a buffer writes it all at once, unless something is in between.
		if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{strings.NewReader(before)}, make([]byte, size)); err != nil || found != 0 {
			t.Fatalf("writes of %d bytes: found %d times before it was written, %v", size, found, err)
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{strings.NewReader(text)}, make([]byte, size)); err != nil || found != 1 {
			t.Fatalf("writes of %d bytes: found %d times, %v", size, found, err)
		}
		if written.String() != before+text {
			t.Fatalf("writes of %d bytes: %q was written", size, written.String())
		}
	}
}
