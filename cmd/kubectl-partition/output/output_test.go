// SPDX-License-Identifier: Apache-2.0

package output

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// full is a disk without room.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestAResultThatCannotBeWrittenIsAnError(t *testing.T) {
	for _, format := range []Format{"", Wide, JSON, YAML} {
		// Most tables ignore the errors of their writes.
		err := format.Print(full{}, TypeMeta("A"), func(w io.Writer, _ bool) error { fmt.Fprintln(w, "a"); return nil })
		if !errors.Is(err, errFull) {
			t.Errorf("the format %q gives %v, want %v", format, err, errFull)
		}
	}
}
