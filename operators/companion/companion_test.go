// SPDX-License-Identifier: Apache-2.0

package companion

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
)

type settings struct {
	Name string `json:"name,omitempty"`
}

func (s *settings) Default() {
	if s.Name == "" {
		s.Name = "default"
	}
}

func (s *settings) Validate(*field.Path, *configv1alpha1.ControllerConfiguration) field.ErrorList {
	return nil
}

type configured struct {
	Companion
	settings settings
}

func (c *configured) Settings() Settings { return &c.settings }

func TestWhatAConfigurationLeavesOutIsTheDefaultWhateverWasThereBefore(t *testing.T) {
	c := &configured{}
	for _, test := range []struct{ raw, want string }{{`{"name":"chosen"}`, "chosen"}, {`{}`, "default"}, {"", "default"}} {
		config := &configv1alpha1.ControllerConfiguration{}
		if test.raw != "" {
			config.Settings = runtime.RawExtension{Raw: []byte(test.raw)}
		}
		if err := Configure(c, config); err != nil || c.settings.Name != test.want {
			t.Errorf("with %q it is %q (%v), want %q", test.raw, c.settings.Name, err, test.want)
		}
	}
}
