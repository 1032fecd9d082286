package host

import (
	"slices"
	"strings"
	"testing"
)

// A user reads this while a cluster starts.
func TestUpSaysWhatItStarts(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   []string
	}{
		"a node":                                {Config{}, []string{"starting etcd and containerd", "starting the control plane", "starting the kubelet and kube-proxy"}},
		"a control plane without a node":        {Config{WithoutNode: true}, []string{"starting etcd and the control plane"}},
		"a control plane that consists of pods": {Config{ControlPlaneType: "management"}, []string{"starting containerd", "starting the kubelet, and with it the control plane"}},
		"a further node":                        {Config{Join: "https://10.248.0.1:6443"}, []string{"starting containerd, the kubelet and kube-proxy"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, step := range New(test.config).steps() {
				if step.progress != "" {
					got = append(got, step.progress)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("Up says %q, want %q", got, test.want)
			}
		})
	}
}

func TestControllersAreChosen(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   []string
	}{
		"a node":                         {Config{}, []string{"kube-controller-manager", "kube-scheduler"}},
		"a control plane without a node": {Config{WithoutNode: true}, []string{"kube-controller-manager"}},
		"none":                           {Config{Controllers: []string{}}, nil},
		"one of two":                     {Config{Controllers: []string{"kube-scheduler"}}, []string{"kube-scheduler"}},
	} {
		t.Run(name, func(t *testing.T) {
			controllers, err := New(test.config).controllers()
			var got []string
			for _, controller := range controllers {
				got = append(got, controller.Name())
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("the controllers are %q (%v), want %q", got, err, test.want)
			}
		})
	}
	const unknown = "cloud-controller-manager"
	if _, err := New(Config{Controllers: []string{unknown}}).controllers(); err == nil || !strings.Contains(err.Error(), unknown) {
		t.Errorf("the error is %v, want one that names %s", err, unknown)
	}
}
