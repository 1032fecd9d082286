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
	"errors"
	"os"
	"path/filepath"
)

// replaceFile replaces a file as a whole, so that nobody reads half of it, and nothing is lost if there is no
// room. Its mode does not depend on the umask. The temporary name begins with a dot, because a kubelet that
// watches the directory would start a static pod from any other.
func replaceFile(name string, content []byte, mode os.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(name), ".kubectl-partition-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}
