// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Bounds of what a Tuned may have, besides its schema.
const (
	// MaxName is the longest name of a Tuned: in the hosted cluster that gets a dash and eight digits.
	MaxName = validation.DNS1123SubdomainMaxLength - 9
	// MaxMatchDepth is how deep the rules of recommend[].match may be nested.
	MaxMatchDepth = 8
	// MaxProfileName is the longest name of a directory (NAME_MAX).
	MaxProfileName = 255
)

// Management states of the Tuned default on an ordinary cluster. Empty and Force are Managed.
const (
	Managed = "Managed"
	// Unmanaged lets everything stay as it is.
	Unmanaged = "Unmanaged"
	Force     = "Force"
	// Removed takes the operand and all Profiles away.
	Removed = "Removed"
)

// DeferredAnnotation of a Tuned says which changes of the profile that it recommends wait for the node's next boot. The Profiles of
// its nodes have it, too. Empty is DeferNever.
const DeferredAnnotation = "tuned.openshift.io/deferred"

// Values of DeferredAnnotation.
const (
	// DeferNever lets every change be applied at once.
	DeferNever = "never"
	// DeferAlways lets every change wait, the first one of a node included.
	DeferAlways = "always"
	// DeferUpdate lets a change of the node's present profile wait. Another profile is applied at once.
	DeferUpdate = "update"
)

// DeferModes are all values of DeferredAnnotation.
var DeferModes = []string{DeferNever, DeferAlways, DeferUpdate}

// profileName is what TuneD accepts as the name of a profile (safe_name in tuned/profiles/loader.py), without a hyphen at the
// beginning, which has a meaning of its own in include.
var profileName = regexp.MustCompile(`^[a-zA-Z0-9_.][a-zA-Z0-9_.-]*$`)

// IsProfileName reports whether a text that is no longer than MaxProfileName can be the name of a profile.
func IsProfileName(name string) bool {
	return profileName.MatchString(name) && strings.Trim(name, ".") != ""
}
