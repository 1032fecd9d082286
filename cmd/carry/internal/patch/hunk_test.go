// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hunksIn reads the hunks of a diff of one file, without its headers.
func hunksIn(text string) ([]Hunk, error) {
	var d FileDiff
	number := 0
	for line := range strings.Lines(text) {
		number++
		parsed, ok := diffLine(number, strings.TrimSuffix(line, "\n"))
		if !ok {
			parsed = Line{Number: number, Op: '?', Text: line}
		}
		d.Lines = append(d.Lines, parsed)
	}
	return d.Hunks()
}

func printed(hunks []Hunk) string {
	var text strings.Builder
	for _, h := range hunks {
		text.WriteString(h.String())
	}
	return text.String()
}

func TestHunksArePrintedAsTheyWereRead(t *testing.T) {
	for name, text := range map[string]string{
		"one":                "@@ -1,2 +1,3 @@\n a\n+b\n c\n",
		"two":                "@@ -1,1 +1,2 @@ func f() {\n a\n+b\n@@ -9,1 +10,0 @@ type T\n-x\n",
		"counts left out":    "@@ -1 +1 @@\n-a\n+b\n",
		"one count left out": "@@ -1 +1,2 @@\n a\n+b\n",
		"a new file":         "@@ -0,0 +1,1 @@\n+a\n",
		"spaces":             "@@ -1,1 +1,2 @@  f \n  \n+\t\n",
		"empty lines":        "@@ -1,1 +1,2 @@\n \n+\n",
	} {
		t.Run(name, func(t *testing.T) {
			hunks, err := hunksIn(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := printed(hunks); got != text {
				t.Errorf("printed %q, read %q", got, text)
			}
		})
	}
}

func TestHunksRefusesWhatIsNoHunk(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no head":           {" a\n+b\n", "line 1: is before the first hunk"},
		"another head":      {"@@ a @@\n+b\n", `line 1: "@@ a @@" is not the header of a hunk`},
		"a leading zero":    {"@@ -01,1 +1,2 @@\n a\n+b\n", "is not the header of a hunk"},
		"a huge number":     {"@@ -99999999999999999999,1 +1,2 @@\n a\n+b\n", "is not the header of a hunk"},
		"too short":         {"@@ -1,3 +1,4 @@\n a\n+b\n", "line 1: the hunk is shorter than its header says"},
		"too long":          {"@@ -1,1 +1,2 @@\n a\n+b\n+c\n", "line 4: the hunk is longer than its header says"},
		"the first, short":  {"@@ -1,2 +1,2 @@\n-a\n+b\n@@ -9,1 +9,0 @@\n-x\n", "line 1: the hunk is shorter than its header says"},
		"no change":         {"@@ -1,1 +1,1 @@\n a\n", "line 1: the hunk changes nothing"},
		"nothing":           {"@@ -1,0 +1,0 @@\n", "line 1: the hunk changes nothing"},
		"no newline at end": {"@@ -1,1 +1,1 @@\n-a\n+b\n\\ No newline at end of file\n", "does not end with a newline"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := hunksIn(test.text); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

// FuzzHunks tries what a hunk may look like. What is read as one is printed as it was,
// and keeps to its own file when its context is trimmed.
func FuzzHunks(f *testing.F) {
	f.Add("@@ -1,2 +1,3 @@ func f() {\n a\n+\tmanaged.A()\n c\n")
	f.Add("@@ -1 +1 @@\n-a\n+b\n@@ -9,1 +9,0 @@\n-x\n")
	f.Add("@@ -1,3 +1,3 @@\n a\n-b\n+c\n d\n")
	f.Add("@@ -1,1 +1,1 @@\n-a\n+b\n\\ No newline at end of file\n")
	// The series itself: hunks as they are carried.
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "patches", "*.patch"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		p, err := Parse(path, data)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range p.Files {
			hunks, err := file.Hunks()
			if err != nil {
				f.Fatal(path, err)
			}
			f.Add(printed(hunks))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		hunks, err := hunksIn(text)
		if err != nil {
			return
		}
		if got := printed(hunks); got != text {
			t.Fatalf("printed %q, read %q", got, text)
		}
		for _, h := range hunks {
			var old []string
			for _, line := range h.Lines {
				if line.Op != '+' {
					old = append(old, line.Text)
				}
			}
			shared := h.Shared([][]string{old})
			if len(old) > 0 && len(shared.Places(old)) != 1 {
				t.Errorf("%q became %q, which no longer fits into %q once", h, shared, old)
			}
			if again, err := hunksIn(shared.String()); err != nil || len(again) != 1 {
				t.Errorf("%q became %q, which is %d hunks: %v", h, shared, len(again), err)
			}
		}
		// A whole patch around it is read, or refused.
		if p, err := Parse("p.patch", []byte("Subject: [PATCH] s\n\nw\n---\ndiff --git a/f b/f\n"+text)); err == nil {
			for _, file := range p.Files {
				_, _ = file.Hunks()
			}
		}
	})
}
