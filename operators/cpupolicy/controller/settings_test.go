// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/companion"
)

// configure reads a configuration with these settings.
func configure(t *testing.T, settings string) (Settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: config.workload.openshift.io/v1alpha1\nkind: ControllerConfiguration\nsettings: " + settings + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := configv1alpha1.Read(path, "ns")
	if err != nil {
		return Settings{}, err
	}
	var c Companion
	err = companion.Configure(&c, config)
	return c.settings, err
}

func TestSettingsThatChooseNothingAreComplete(t *testing.T) {
	settings, err := configure(t, `{agentImage: "agent@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`)
	if err != nil {
		t.Fatal(err)
	}
	if settings.SwitchTimeout.Duration != 150*time.Second || settings.Actions.BindAddress != ":8444" {
		t.Errorf("the settings are %+v", settings)
	}
}

func TestSettingsChooseDurations(t *testing.T) {
	settings, err := configure(t, `{agentImage: "r.example.com/agent", switchTimeout: 31s, operationTimeout: 36s, labelTimeout: 2s, actions: {bindAddress: "0"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if settings.LabelTimeout.Duration != 2*time.Second || settings.Actions.BindAddress != "0" {
		t.Errorf("the settings are %+v", settings)
	}
}

func TestWhatIsWrongWithSettings(t *testing.T) {
	for name, test := range map[string]struct {
		settings string
		// want are parts of the error: the field, the value, and what to do.
		want []string
	}{
		"an unknown field":                      {"{switchTimeOut: 1s}", []string{`"switchTimeOut"`}},
		"a wrong duration":                      {"{labelTimeout: 5x}", []string{"settings: labelTimeout", "5x"}},
		"no image of the agent":                 {"{}", []string{"settings.agentImage", "registry"}},
		"an image without a registry":           {"{agentImage: partition-agent}", []string{"settings.agentImage", "partition-agent", "digest"}},
		"an image of Docker Hub":                {"{agentImage: somebody/partition-agent:v1}", []string{"settings.agentImage", "somebody"}},
		"a driver that the agent does not know": {"{driver: k3s}", []string{"settings.driver", "k3s", "rke2"}},
		"a switch that the agent would not do":  {"{switchTimeout: 151s}", []string{"settings.switchTimeout", "2m31s", "2m30s"}},
		"a switch that no kubelet could do":     {"{switchTimeout: 29s}", []string{"settings.switchTimeout", "29s", "30s"}},
		"a look that no agent could have":       {"{observeTimeout: 500ms}", []string{"settings.observeTimeout", "500ms", "5s"}},
		"an operation shorter than a switch":    {"{operationTimeout: 2m}", []string{"settings.operationTimeout", "2m0s", "7m30s"}},
		"a negative duration":                   {"{labelTimeout: -1s}", []string{"settings.labelTimeout", "-1s"}},
		"actions without a port":                {"{actions: {bindAddress: 10.0.0.1}}", []string{"settings.actions.bindAddress", "10.0.0.1", "host:port"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configure(t, test.settings)
			if err == nil {
				t.Fatal("they are accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not name %q: %v", want, err)
				}
			}
		})
	}
}
