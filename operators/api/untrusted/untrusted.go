// SPDX-License-Identifier: Apache-2.0

// Package untrusted keeps what somebody else wrote from doing harm: numbers that take too long to read, and texts that
// are too long to show. It knows no kind of objects.
package untrusted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// endless is a number that takes a resource.Quantity long to read or to compare: that computes 10 to the power of it. A
// Quantity needs no digit before the exponent.
var endless = regexp.MustCompile(`^[-+]?[0-9.]*[eE][-+]?[0-9]{4,}$`)

// mayBeEndless is what has such a number, unless an escape hides it.
var mayBeEndless = regexp.MustCompile(`[eE][-+]?[0-9]{4}|\\`)

// CheckNumbers returns an error if JSON has such a number. It goes through the text, since a decoder may drop what
// another one reads: the first of two equal keys, or one of another case. Call it before anything is decoded: every pod
// may post to the port of a webhook. Values of labels and annotations are texts, and commits may look like numbers.
func CheckNumbers(raw []byte) error {
	if !mayBeEndless.Match(raw) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var path []string // of objects, the key that is being read; of arrays, nothing
	var objects []bool
	atKey := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if delim, ok := token.(json.Delim); ok && (delim == '{' || delim == '[') {
			path, objects, atKey = append(path, ""), append(objects, delim == '{'), delim == '{'
			continue
		} else if ok {
			path, objects = path[:len(path)-1], objects[:len(objects)-1]
			atKey = len(objects) > 0 && objects[len(objects)-1]
			continue
		}
		if atKey {
			path[len(path)-1], atKey = token.(string), false
			continue
		}
		atKey = len(objects) > 0 && objects[len(objects)-1]
		if isText(path) {
			continue
		}
		if text := strings.TrimSpace(fmt.Sprint(token)); endless.MatchString(text) {
			return fmt.Errorf("the number %s has an exponent of more than three digits", Abbreviate(text, 80))
		}
	}
}

// isText reports whether a value is that of a label or an annotation.
func isText(path []string) bool {
	n := len(path)
	return n >= 3 && path[n-3] == "metadata" && (path[n-2] == "labels" || path[n-2] == "annotations")
}

// ellipsis marks what Abbreviate has cut.
const ellipsis = "…"

// Abbreviate cuts a text to at most that many bytes, and marks the cut. Bytes that are no UTF-8 are replaced.
func Abbreviate(text string, most int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= most {
		return text
	}
	cut := max(0, most-len(ellipsis))
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + ellipsis
}

// Note abbreviates the note of an Event to what kube-apiserver accepts (k8s.io/kubernetes, NoteLengthLimit in
// pkg/apis/core/validation/events.go).
func Note(text string) string {
	return Abbreviate(text, 1024)
}

// First returns the first of some texts, and says how many more there are.
func First(texts []string, most int) []string {
	if more := len(texts) - most; more > 0 {
		return append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", more))
	}
	return texts
}
