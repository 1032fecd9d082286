// SPDX-License-Identifier: Apache-2.0

// Package deploy has the manifests of the plugin.
package deploy

import _ "embed"

// Audit runs kubectl partition audit on each node that has a pool: audit.yaml.
//
//go:embed audit.yaml
var Audit []byte
