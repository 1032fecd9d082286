// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/tuning"
)

// Reasons of the conditions. Those of the Node Tuning Operator have its names (pkg/operator/status.go and
// pkg/tuned/status.go there).
const (
	ReasonAsExpected        = "AsExpected"
	ReasonApplying          = "Applying"
	ReasonFailed            = "Failed"
	ReasonTimeout           = "Timeout"
	ReasonTunedEnded        = "TunedEnded"
	ReasonTunedError        = "TunedError"
	ReasonTunedWarning      = "TunedWarning"
	ReasonDeferredUpdate    = "TunedDeferredUpdate"
	ReasonSysctlOverride    = "TunedSysctlOverride"
	ReasonUnsupportedPlugin = "UnsupportedPlugin"
	ReasonArgumentsRefused  = "KernelArgumentsRefused"
	ReasonLeftOutAtBoot     = "LeftOutAtBoot"
)

// phase is how far TuneD is with what is in force.
type phase int

const (
	idle phase = iota
	applying
	applied
	failed
	timedOut
)

// observed is what is known of a TuneD since it was told to apply a profile.
type observed struct {
	record Record
	phase  phase
	// waits is true while the Profile has another profile, for the node's next boot.
	waits bool
	// leftOut is true if Boot has left the Profile out.
	leftOut bool
	// said are the lines of TuneD's log that matter, by what they are.
	errors, warnings, overrides []string
	// last is where a line that continues another belongs.
	last *[]string
	// unsupported are the plugins of the profile that cannot do anything here.
	unsupported []string
	// ended is why TuneD ended.
	ended   error
	cmdline string
	// problem is what kept this program from giving TuneD the profile.
	problem error
}

// Bounds of what is kept of TuneD's log.
const (
	maxLines   = 20
	maxMessage = 8 << 10
)

// take notes a line of TuneD's log.
func (o *observed) take(l *line) {
	if l.more {
		// Of a traceback, the error itself counts.
		trace := strings.HasPrefix(l.text, "Traceback ") || strings.HasPrefix(l.text, " ")
		if o.last != nil && len(*o.last) > 0 && !trace {
			texts := *o.last
			if at := len(texts) - 1; len(texts[at])+len(l.text) < longestLine {
				texts[at] += " " + strings.TrimSpace(l.text)
			}
		}
		return
	}
	o.last = nil
	text := l.logger + ": " + l.text
	switch {
	case l.level == "ERROR" || l.level == "CRITICAL":
		o.last = &o.errors
	// That no boot loader is there to be written is no fault: its arguments go another way.
	case l.level == "WARNING" && !strings.HasSuffix(l.logger, ".plugin_bootloader") && !strings.HasSuffix(l.logger, ".unix_socket_exporter"):
		o.last = &o.warnings
	// tuned/plugins/plugin_sysctl.py: a file of the host's sysctl.d has another value, which counts.
	case strings.HasSuffix(l.logger, ".plugin_sysctl") && strings.HasPrefix(l.text, "Overriding sysctl parameter"):
		o.last, text = &o.overrides, l.text
	}
	if o.last == nil || slices.Contains(*o.last, text) || len(*o.last) >= maxLines {
		o.last = nil
		return
	}
	*o.last = append(*o.last, text)
}

// status is what the Profile says of it. Times of transitions come from the status before.
func (o *observed) status(profile *tunedv1.Profile, now time.Time) tunedv1.ProfileStatus {
	status := tunedv1.ProfileStatus{Bootcmdline: o.cmdline, Conditions: slices.Clone(profile.Status.Conditions)}
	switch {
	case o.waits || o.leftOut || o.record.Hash == hashOf(profile):
		status.ObservedGeneration = profile.Generation
	case o.record.UID == profile.UID:
		status.ObservedGeneration = o.record.Generation
	}
	if o.phase == applied {
		status.TunedProfile = o.record.Profile
	}
	set := func(kind string, value bool, reason, message string) {
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: untrusted.Abbreviate(message, maxMessage), LastTransitionTime: metav1.NewTime(now)}
		if value {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	name := o.record.Profile
	switch {
	case o.waits:
		message := fmt.Sprintf("The profile %s waits for the next boot of the node, as its Tuned asks by %s=%s.", profile.Spec.Config.TunedProfile, tunedv1.DeferredAnnotation, deferral(profile))
		if name != "" {
			message += fmt.Sprintf(" Until then the node has the profile %s as it was.", name)
		}
		set(tunedv1.ConditionApplied, false, tunedv1.ReasonDeferred, message)
	case o.phase == applied:
		set(tunedv1.ConditionApplied, true, ReasonAsExpected, fmt.Sprintf("TuneD has applied the profile %s.", name))
	case o.phase == applying || o.phase == idle:
		set(tunedv1.ConditionApplied, false, ReasonApplying, fmt.Sprintf("TuneD has not applied the profile %s yet.", cmp.Or(name, profile.Spec.Config.TunedProfile)))
	case o.phase == timedOut:
		set(tunedv1.ConditionApplied, false, ReasonTimeout, fmt.Sprintf("TuneD has not applied the profile %s in time.", name))
	default:
		set(tunedv1.ConditionApplied, false, ReasonFailed, fmt.Sprintf("TuneD could not apply the profile %s.", name))
	}
	switch {
	case o.problem != nil:
		set(tunedv1.ConditionDegraded, true, ReasonFailed, o.problem.Error())
	case o.ended != nil && o.phase != applied:
		message := fmt.Sprintf("TuneD ended (%v) and is started again.", o.ended)
		if len(o.errors) > 0 {
			message += " It said: " + strings.Join(o.errors, "\n")
		}
		set(tunedv1.ConditionDegraded, true, ReasonTunedEnded, message)
	case len(o.unsupported) > 0:
		message := fmt.Sprintf("The profile has plugins that cannot do anything in the operand: %s. Remove their sections.", strings.Join(o.unsupported, ", "))
		if len(o.errors) > 0 {
			message += " TuneD reported errors: " + strings.Join(o.errors, "\n")
		}
		set(tunedv1.ConditionDegraded, true, ReasonUnsupportedPlugin, message)
	case len(o.errors) > 0:
		set(tunedv1.ConditionDegraded, true, ReasonTunedError, "TuneD reported errors: "+strings.Join(o.errors, "\n"))
	case o.phase == timedOut:
		set(tunedv1.ConditionDegraded, true, ReasonTimeout, "TuneD neither applied the profile nor reported an error. A script or a command of the profile may not return.")
	case o.phase == failed:
		set(tunedv1.ConditionDegraded, true, ReasonTunedError, "TuneD could not apply the profile.")
	case o.leftOut:
		set(tunedv1.ConditionDegraded, true, ReasonLeftOutAtBoot, fmt.Sprintf("The node was told to apply the profile %s, did not reach the API server after that, and has booted without it. It is applied now. If the node is cut off again, correct the profile and reset the node.", profile.Spec.Config.TunedProfile))
	case profile.Annotations[tuning.RefusedAnnotation] != "":
		set(tunedv1.ConditionDegraded, true, ReasonArgumentsRefused, "Kernel arguments are refused, and no node of the NodePool boots with what TuneD computes: "+profile.Annotations[tuning.RefusedAnnotation])
	case len(o.overrides) > 0:
		set(tunedv1.ConditionDegraded, true, ReasonSysctlOverride, "Files of the host's sysctl.d have other values, and these count: "+strings.Join(o.overrides, "\n")+"\nRemove them there, or set reapply_sysctl to false in operand.tunedConfig.")
	case o.waits:
		// Its user wants that: it is no fault.
		set(tunedv1.ConditionDegraded, false, ReasonDeferredUpdate, "The profile is applied at the next boot of the node.")
	case len(o.warnings) > 0:
		set(tunedv1.ConditionDegraded, false, ReasonTunedWarning, "TuneD reported warnings: "+strings.Join(o.warnings, "\n"))
	default:
		set(tunedv1.ConditionDegraded, false, ReasonAsExpected, "TuneD reported no errors and no warnings.")
	}
	return status
}
