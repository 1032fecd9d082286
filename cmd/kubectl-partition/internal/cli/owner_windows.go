// SPDX-License-Identifier: Apache-2.0

package cli

import "os"

// keepOwner does nothing: a new file has the rights of its directory.
func keepOwner(*os.File, os.FileInfo) error { return nil }
