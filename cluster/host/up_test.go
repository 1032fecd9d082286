package host

import (
	"slices"
	"testing"
)

// What a user reads while a cluster starts.
func TestUpSaysWhatItStarts(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   []string
	}{
		"a node":                                {Config{}, []string{"starting etcd and containerd", "starting the control plane", "starting the kubelet and kube-proxy"}},
		"a control plane without a node":        {Config{WithoutNode: true}, []string{"starting etcd, kube-apiserver and kube-controller-manager"}},
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
