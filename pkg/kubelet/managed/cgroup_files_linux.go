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

package managed

import "github.com/opencontainers/cgroups"

// readCgroupFile and writeCgroupFile have files of their own, since that library builds for Linux alone, and
// upstream builds the kubelet for Windows, too.

// readCgroupFile returns the content of a file of a cgroup's directory.
func readCgroupFile(directory, file string) (string, error) { return cgroups.ReadFile(directory, file) }

// writeCgroupFile writes a file of a cgroup's directory.
func writeCgroupFile(directory, file, data string) error {
	return cgroups.WriteFile(directory, file, data)
}
