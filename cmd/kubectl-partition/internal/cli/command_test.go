// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"k8s.io/component-base/version"
)

func TestVersion(t *testing.T) {
	if printed, code, said := run("--version"); code != 0 || printed != "kubectl partition version "+version.Get().GitVersion+"\n" || said != "" {
		t.Errorf("it ended with %d, printed %q and said %q", code, printed, said)
	}
	if _, code, said := run("-v"); code != 2 || !strings.Contains(said, "'v'") {
		t.Errorf("-v is the verbosity of kubectl, but it ended with %d and said %q", code, said)
	}
}
