// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/workloadclasses"
)

// Settings are what an administrator chooses for workload classes.
type Settings struct {
	// RulesFile has the rules. It is read again when it changes; one with a mistake changes nothing.
	// It defaults to /etc/partition-controller-rules/rules.yaml.
	RulesFile string `json:"rulesFile,omitempty"`
	// Machines is who removes the machine of a node: MachineSet (OpenShift), MachineDeployment
	// (Cluster API), or None, which only packs pods. It defaults to None.
	Machines MachineAPI `json:"machines,omitempty"`
	// MachineNamespace is where Machines and their sets are. It defaults to openshift-machine-api.
	MachineNamespace string `json:"machineNamespace,omitempty"`
	// Period is the time between two evaluations of a class, and the least between a cordon and
	// the claim. It defaults to one minute.
	Period metav1.Duration `json:"period,omitempty"`
	// MaxCordon is how long an empty node stays cordoned, until a taint does the same. It defaults
	// to eight minutes, since some providers raise an alert at ten.
	MaxCordon metav1.Duration `json:"maxCordon,omitempty"`
	// MinNodeAge is how old a node must be before it is cordoned. It defaults to 15 minutes.
	MinNodeAge metav1.Duration `json:"minNodeAge,omitempty"`
	// DrainGrace is how long DaemonSets' pods have to leave. It defaults to 40 seconds.
	DrainGrace metav1.Duration `json:"drainGrace,omitempty"`
	// DrainPatience is how long a node may wait for its set until it is freed. It defaults to five
	// minutes.
	DrainPatience metav1.Duration `json:"drainPatience,omitempty"`
	// SharePercent of a class's nodes, rounded up, are avoided. It defaults to 25.
	SharePercent int `json:"sharePercent,omitempty"`
	// RoomPercent has further nodes avoided by preference: all without which the others have this much
	// room for new pods, as a share of what pods of the class ask for. It defaults to 0, which is the
	// share alone. With a scheduler that spreads pods, 20 fills nodes nearly as one that packs them.
	RoomPercent int `json:"roomPercent,omitempty"`
}

// MachineAPI is an API of machines.
type MachineAPI string

// MachineAPIs.
const (
	MachineSet        MachineAPI = "MachineSet"
	MachineDeployment MachineAPI = "MachineDeployment"
	NoMachines        MachineAPI = "None"
)

// Default implements companion.Settings.
func (s *Settings) Default() {
	configv1alpha1.DefaultText(&s.RulesFile, "/etc/partition-controller-rules/rules.yaml")
	s.Machines = cmp.Or(s.Machines, NoMachines)
	configv1alpha1.DefaultText(&s.MachineNamespace, "openshift-machine-api")
	policy, timing := workloadclasses.DefaultPolicy(), workloadclasses.DefaultTiming()
	configv1alpha1.DefaultDuration(&s.Period, policy.Period)
	configv1alpha1.DefaultDuration(&s.MaxCordon, policy.MaxCordon)
	configv1alpha1.DefaultDuration(&s.MinNodeAge, policy.MinNodeAge)
	configv1alpha1.DefaultDuration(&s.DrainGrace, timing.Grace)
	configv1alpha1.DefaultDuration(&s.DrainPatience, timing.Patience)
	s.SharePercent = cmp.Or(s.SharePercent, policy.SharePercent)
}

// Validate implements companion.Settings.
func (s *Settings) Validate(path *field.Path, _ *configv1alpha1.ControllerConfiguration) (errs field.ErrorList) {
	if apis := []MachineAPI{MachineSet, MachineDeployment, NoMachines}; !slices.Contains(apis, s.Machines) {
		errs = append(errs, field.NotSupported(path.Child("machines"), s.Machines, apis))
	}
	errs = append(errs, configv1alpha1.ValidateLabel(path.Child("machineNamespace"), s.MachineNamespace)...)
	errs = append(errs, configv1alpha1.ValidatePositive(path, map[string]metav1.Duration{
		"period": s.Period, "maxCordon": s.MaxCordon, "minNodeAge": s.MinNodeAge, "drainGrace": s.DrainGrace, "drainPatience": s.DrainPatience,
	})...)
	if s.DrainPatience.Duration > 0 && s.DrainPatience.Duration <= s.DrainGrace.Duration {
		errs = append(errs, field.Invalid(path.Child("drainPatience"), s.DrainPatience.Duration.String(), "must be longer than drainGrace"))
	}
	if s.SharePercent < 1 || s.SharePercent > 100 {
		errs = append(errs, field.Invalid(path.Child("sharePercent"), s.SharePercent, "must be between 1 and 100"))
	}
	if s.RoomPercent < 0 || s.RoomPercent > 1000 {
		errs = append(errs, field.Invalid(path.Child("roomPercent"), s.RoomPercent, "must be between 0 and 1000"))
	}
	return errs
}

func (s *Settings) policy() workloadclasses.Policy {
	return workloadclasses.Policy{
		SharePercent: s.SharePercent,
		RoomPercent:  s.RoomPercent,
		Minimum:      1,
		Period:       s.Period.Duration,
		MaxCordon:    s.MaxCordon.Duration,
		MinNodeAge:   s.MinNodeAge.Duration,
		PackOnly:     s.Machines == NoMachines,
	}
}

func (s *Settings) timing() workloadclasses.Timing {
	return workloadclasses.Timing{Grace: s.DrainGrace.Duration, Patience: s.DrainPatience.Duration}
}

// rulesPeriod is the time between two looks at the rules file.
const rulesPeriod = 5 * time.Second
