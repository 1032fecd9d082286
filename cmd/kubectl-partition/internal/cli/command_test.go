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
