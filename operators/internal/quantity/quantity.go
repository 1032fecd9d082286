// SPDX-License-Identifier: Apache-2.0

// Package quantity keeps a webhook from reading numbers that take too long. It knows no kind of
// objects.
package quantity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// endless is a number that takes a resource.Quantity long to read: that computes 10 to the power of it.
var endless = regexp.MustCompile(`^[-+]?[0-9.]+[eE][-+]?[0-9]{4,}$`)

// Check returns an error if an object in JSON has such a number. It goes through the text, since a decoder may drop what
// another one reads: the first of two equal keys, or one of another case. Call it before anything is decoded: every pod
// may post to the port of a webhook.
func Check(raw []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text := ""
		switch value := token.(type) {
		case string:
			text = strings.TrimSpace(value)
		case json.Number:
			text = string(value)
		}
		if endless.MatchString(text) {
			return fmt.Errorf("the number %s has an exponent of more than three digits", text[:min(len(text), 80)])
		}
	}
}
