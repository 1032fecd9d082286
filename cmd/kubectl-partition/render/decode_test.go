// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ignition "github.com/coreos/ignition/v2/config/v3_2"
	"github.com/pelletier/go-toml/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/etcd"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/patches"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/staticpod"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/utils/cpuset"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/render"
	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/partition"
)

// These tests read what is rendered with the code of the programs that read it on a node.

// rendered returns the files of node.yaml for a target, by their paths.
func rendered(t *testing.T, target render.Target) map[string]nodefiles.File {
	t.Helper()
	nodes, _ := read(t, "node.yaml")
	r, err := render.Render(target, nodes, render.Options{KubeAPIServerImage: "registry.example.com/kube-apiserver:v1"})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]nodefiles.File{}
	for _, file := range r.Files {
		files[file.Path] = file
	}
	return files
}

func TestKubeletReadsThePinningFile(t *testing.T) {
	file := rendered(t, render.Tree)["etc/kubernetes/openshift-workload-pinning"]
	host, err := cpuset.Parse("0-55")
	if err != nil {
		t.Fatal(err)
	}
	pools, err := partition.Parse(file.Content, host)
	if err != nil || len(pools) != 1 || pools["management"].String() != "0-1,28-29" || file.Mode != 0o600 {
		t.Errorf("got %v with mode %#o, %v", pools, file.Mode, err)
	}
}

func TestCRIODropInIsTOML(t *testing.T) {
	file := rendered(t, render.Tree)["etc/crio/crio.conf.d/01-workload-partitioning"]
	var got map[string]any
	if err := toml.Unmarshal(file.Content, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"crio": map[string]any{"runtime": map[string]any{
		"infra_ctr_cpuset": "0-1,28-29",
		"workloads": map[string]any{"management": map[string]any{
			"activation_annotation": "target.workload.openshift.io/management",
			"annotation_prefix":     "resources.workload.openshift.io",
			"resources":             map[string]any{"cpushares": int64(0), "cpuset": "0-1,28-29"},
		}},
	}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// decodeKubelet decodes strictly, as the kubelet does with --config.
func decodeKubelet(t *testing.T, data []byte) *kubeletconfig.KubeletConfiguration {
	t.Helper()
	_, codecs, err := kubeletscheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		t.Fatal(err)
	}
	object, err := runtime.Decode(codecs.UniversalDecoder(), data)
	if err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	return object.(*kubeletconfig.KubeletConfiguration)
}

func TestKubeletReadsItsDropIn(t *testing.T) {
	file := rendered(t, render.Tree)["etc/kubernetes/kubelet.conf.d/01-workload-partitioning.conf"]
	got := decodeKubelet(t, file.Content)
	if got.ReservedSystemCPUs != "0-1,28-29" || got.CPUManagerPolicy != "static" || got.CPUManagerPolicyOptions["strict-cpu-reservation"] != "true" {
		t.Errorf("got %q, %q and %q", got.ReservedSystemCPUs, got.CPUManagerPolicy, got.CPUManagerPolicyOptions)
	}
	// A drop-in overrides every field that it has (upstream, cmd/kubelet/app/server.go,
	// mergeKubeletConfigurations), even one that is zero.
	var fields map[string]any
	if err := yaml.Unmarshal(file.Content, &fields); err != nil {
		t.Fatal(err)
	}
	if keys, want := slices.Sorted(maps.Keys(fields)), []string{"apiVersion", "cpuManagerPolicy", "cpuManagerPolicyOptions", "kind", "reservedSystemCPUs"}; !slices.Equal(keys, want) {
		t.Errorf("has %q, want %q", keys, want)
	}
}

func TestKubeAPIServerReadsTheAdmissionConfiguration(t *testing.T) {
	file := rendered(t, render.Tree)["etc/kubernetes/admission/configuration.yaml"]
	path := filepath.Join(t.TempDir(), "configuration.yaml")
	if err := os.WriteFile(path, file.Content, 0o600); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	provider, err := admission.ReadAdmissionConfiguration([]string{config.PluginName}, path, scheme)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := provider.ConfigFor(config.PluginName)
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Read(reader)
	if err != nil || got.Activation.Source != config.SourceTypes || !slices.Equal(got.Activation.Types, []string{"management"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMachineConfigIsIgnition(t *testing.T) {
	files := rendered(t, render.MachineConfig)
	var object struct {
		Spec struct {
			Config          json.RawMessage
			KernelArguments []string
		}
	}
	if err := yaml.Unmarshal(files["02-master-workload-partitioning.yaml"].Content, &object); err != nil {
		t.Fatal(err)
	}
	got, report, err := ignition.Parse(object.Spec.Config)
	if err != nil || len(report.Entries) > 0 {
		t.Fatalf("%v: %s", err, report)
	}
	modes := map[string]int{}
	for _, file := range got.Storage.Files {
		modes[file.Path] = *file.Mode
	}
	if modes["/etc/crio/crio.conf.d/01-workload-partitioning"] != 0o644 || modes["/etc/kubernetes/openshift-workload-pinning"] != 0o600 || len(object.Spec.KernelArguments) != 3 {
		t.Errorf("got files %v and arguments %q", modes, object.Spec.KernelArguments)
	}
	var kubelet struct {
		Spec struct{ KubeletConfig map[string]any }
	}
	if err := yaml.Unmarshal(files["02-master-workload-partitioning-kubelet.yaml"].Content, &kubelet); err != nil {
		t.Fatal(err)
	}
	// The operator adds the kind.
	kubelet.Spec.KubeletConfig["apiVersion"], kubelet.Spec.KubeletConfig["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	data, err := json.Marshal(kubelet.Spec.KubeletConfig)
	if err != nil {
		t.Fatal(err)
	}
	if got := decodeKubelet(t, data).ReservedSystemCPUs; got != "0-1,28-29" {
		t.Errorf("the kubelet reserves %q", got)
	}
}

// The test validates the configuration as kubeadm config validate does, and applies the patches to
// kubeadm's own static pods and configuration of the kubelet.
func TestKubeadmTakesItsConfigurationAndPatches(t *testing.T) {
	directory := t.TempDir()
	files := rendered(t, render.Kubeadm)
	for path, file := range files {
		if filepath.Dir(path) == "etc/kubernetes/patches" {
			if err := os.WriteFile(filepath.Join(directory, filepath.Base(path)), file.Content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"init", "join", "upgrade"} {
		content := files["kubeadm-"+name+".yaml"].Content
		if name == "join" {
			// What a fragment cannot know.
			content = append(slices.Clone(content), "discovery: {bootstrapToken: {token: abcdef.0123456789abcdef, apiServerEndpoint: 'example.com:6443', unsafeSkipCAVerification: true}}\n"...)
		}
		if err := kubeadm.ValidateConfig(content, false, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	defaulted, err := kubeadm.DefaultedStaticInitConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	cluster := &defaulted.ClusterConfiguration
	pods := controlplane.GetStaticPodSpecs(cluster, &defaulted.LocalAPIEndpoint, nil)
	pods["etcd"] = etcd.GetEtcdPodSpec(cluster, &defaulted.LocalAPIEndpoint, "node", nil)
	if len(pods) != 4 {
		t.Errorf("kubeadm has the static pods %q", slices.Sorted(maps.Keys(pods)))
	}
	for name, pod := range pods {
		var log bytes.Buffer
		patched, err := staticpod.PatchStaticPod(&pod, directory, &log)
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, log.String())
		}
		if len(patched.Spec.Containers) != 1 {
			t.Errorf("%s has containers %v", name, patched.Spec.Containers)
		}
		if name == "kube-apiserver" && patched.Spec.Containers[0].Image != "registry.example.com/kube-apiserver:v1" {
			t.Errorf("%s has the image %q", name, patched.Spec.Containers[0].Image)
		}
		if d := partition.Mutate(partition.V1(patched), partition.Policy{Gate: partition.AnyType, NeverRefuse: true}); d.Outcome != partition.Partitioned {
			t.Errorf("%s is %q because of %q", name, d.Outcome, d.Reason)
		}
	}
	manager, err := patches.GetPatchManagerForPath(directory, patches.KnownTargets(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	kubelet := &patches.PatchTarget{
		Name:                      patches.KubeletConfiguration,
		StrategicMergePatchObject: kubeletconfig.KubeletConfiguration{},
		Data:                      []byte(`{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "clusterDomain": "cluster.local"}`),
	}
	if err := manager.ApplyPatchesToTarget(kubelet); err != nil {
		t.Fatal(err)
	}
	if got := decodeKubelet(t, kubelet.Data); got.ReservedSystemCPUs != "0-1,28-29" || got.ClusterDomain != "cluster.local" {
		t.Errorf("the kubelet is configured as %s", kubelet.Data)
	}
}

// cloud-init and Butane have no decoder in Go, so these have the rules of their documentation.
func TestCloudInitIsUserData(t *testing.T) {
	content := string(rendered(t, render.CloudInit)["cloud-init.yaml"].Content)
	first, rest, _ := strings.Cut(content, "\n")
	if first != "#cloud-config" {
		t.Errorf("begins with %q", first)
	}
	var got struct {
		WriteFiles []struct{ Path, Permissions, Owner, Content string } `json:"write_files"`
		RunCmd     [][]string                                           `json:"runcmd"`
	}
	if err := yaml.UnmarshalStrict([]byte(rest), &got); err != nil {
		t.Fatal(err)
	}
	tree := rendered(t, render.Tree)
	if len(got.WriteFiles) != len(tree) {
		t.Errorf("writes %d files, want %d", len(got.WriteFiles), len(tree))
	}
	for _, file := range got.WriteFiles {
		want := tree[strings.TrimPrefix(file.Path, "/")]
		if file.Content != string(want.Content) || file.Permissions != fmt.Sprintf("%#o", want.Mode) || file.Owner != "root:root" {
			t.Errorf("%+v, want %+v", file, want)
		}
	}
}
