// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/workloadclasses"
)

func TestSettings(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Settings)
		want   string
	}{
		"the defaults are valid":             {func(*Settings) {}, ""},
		"an API that nobody knows is named":  {func(s *Settings) { s.Machines = "Karpenter" }, `settings.machines: Unsupported value: "Karpenter"`},
		"a namespace that is none is named":  {func(s *Settings) { s.MachineNamespace = "A" }, `settings.machineNamespace: Invalid value: "A"`},
		"a time below zero is named":         {func(s *Settings) { s.MaxCordon.Duration = -time.Second }, "settings.maxCordon: Invalid value"},
		"patience must be longer than grace": {func(s *Settings) { s.DrainPatience = s.DrainGrace }, "settings.drainPatience: Invalid value"},
		"a share of more than all is named":  {func(s *Settings) { s.SharePercent = 101 }, "settings.sharePercent: Invalid value: 101"},
		"a share below one is named":         {func(s *Settings) { s.SharePercent = -1 }, "settings.sharePercent: Invalid value: -1"},
		"a room below zero is named":         {func(s *Settings) { s.RoomPercent = -1 }, "settings.roomPercent: Invalid value: -1"},
	} {
		settings := &Settings{}
		test.change(settings)
		settings.Default()
		if name == "patience must be longer than grace" {
			test.change(settings)
		}
		err := settings.Validate(field.NewPath("settings"), &configv1alpha1.ControllerConfiguration{}).ToAggregate()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	settings := &Settings{}
	settings.Default()
	want := workloadclasses.DefaultPolicy()
	want.PackOnly = true
	if got := settings.policy(); got != want {
		t.Errorf("the defaults are %+v, want %+v", got, want)
	}
}
