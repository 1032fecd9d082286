// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"
	"path/filepath"
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

func TestAForeignPortIsFoundBeforeAnythingIsBuilt(t *testing.T) {
	if why := Unfit(); why != nil {
		t.Skip(why)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	dir := t.TempDir()
	config := Config{
		WithoutNode: true,
		Paths:       Paths{Data: filepath.Join(dir, "data"), Run: filepath.Join(dir, "run")},
		Ports:       Ports{APIServer: port},
		Node:        Node{Address: "127.0.0.1"},
	}
	want := fmt.Sprintf("the cluster needs port %d, which is not free", port)
	if err := New(config).Fit(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want one that says %q", err, want)
	}
	// Up would remove it, and with it what has the port.
	config.Paths.Data = dir
	if err := New(config).Fit(t.Context()); err != nil {
		t.Errorf("with an earlier cluster the error is %v", err)
	}
}
