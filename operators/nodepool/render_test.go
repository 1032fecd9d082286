// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ignition "github.com/coreos/ignition/v2/config/v3_3"
	"github.com/vincent-petithory/dataurl"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
)

// configurationOf is what a pool's sources say.
func configurationOf(t *testing.T, pool Pool) Configuration {
	t.Helper()
	d := Decide(Namespace{Name: "clusters-hosted", HostedCluster: "clusters/hosted"}, []Pool{pool}, nil)
	key := types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}
	if !d.Verdicts[key].Usable() {
		t.Fatalf("the pool cannot be used: %+v", d.Verdicts[key])
	}
	return d.Configurations[key]
}

// part is a generated ConfigMap.
func part(name, input, text string, labels ...string) *corev1.ConfigMap {
	p := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.PoolLabel: "pool-a"}, Annotations: map[string]string{v1beta1.InputAnnotation: input}}, Data: map[string]string{v1beta1.ConfigKey: text}}
	for _, label := range labels {
		p.Labels[label] = ""
	}
	return p
}

// whole is what the companion tuning says with these parts.
func whole(input string, parts ...*corev1.ConfigMap) (*v1beta1.Generated, map[string]*corev1.ConfigMap) {
	g, there := &v1beta1.Generated{Input: input, Computed: true, Parts: map[string]string{}}, map[string]*corev1.ConfigMap{}
	for _, p := range parts {
		g.Parts[p.Name], there[p.Name] = v1beta1.PartHash(p), p
	}
	return g, there
}

func TestOnlyAWholeSetIsRendered(t *testing.T) {
	c := configurationOf(t, aPool("pool-a", []string{"one=" + aPerformanceProfile}, nil))
	mc := func(input string) *corev1.ConfigMap {
		return part("nto-mc-pool-a", input, aMachineConfig("50-nto-pool-a", "kernelArguments: [a=1]"))
	}
	kubelet := func(input string) *corev1.ConfigMap {
		return part("kubeletconfig-fast", input, aKubeletConfig("fast", "restricted"), v1beta1.KubeletConfigLabel)
	}
	for name, test := range map[string]struct {
		change func(g *v1beta1.Generated, parts map[string]*corev1.ConfigMap)
		none   bool
		waits  string
	}{
		"all parts for this input are rendered": {change: func(*v1beta1.Generated, map[string]*corev1.ConfigMap) {}},
		"nothing yet":                           {none: true, waits: "has not looked at this configuration yet"},
		"what is for another input waits":       {change: func(g *v1beta1.Generated, _ map[string]*corev1.ConfigMap) { g.Input = "other" }, waits: "has not settled this configuration yet"},
		"what nodes hold back says so": {change: func(g *v1beta1.Generated, _ map[string]*corev1.ConfigMap) {
			g.Input = "other"
			g.Conditions = []v1beta1.GeneratedCondition{{Type: v1beta1.ConditionKernelArgumentsAgree, Status: metav1.ConditionFalse, Message: "node n1 computes a=2"}}
		}, waits: "node n1 computes a=2"},
		"a missing part waits": {change: func(_ *v1beta1.Generated, parts map[string]*corev1.ConfigMap) { delete(parts, "nto-mc-pool-a") }, waits: "ConfigMap nto-mc-pool-a"},
		"a part for another input waits": {change: func(_ *v1beta1.Generated, parts map[string]*corev1.ConfigMap) {
			parts["kubeletconfig-fast"] = kubelet("other")
		}, waits: "ConfigMap kubeletconfig-fast"},
		"a part that somebody changed waits": {change: func(_ *v1beta1.Generated, parts map[string]*corev1.ConfigMap) {
			parts["nto-mc-pool-a"].Data[v1beta1.ConfigKey] += "# more\n"
		}, waits: "ConfigMap nto-mc-pool-a"},
		"a part of another pool waits": {change: func(_ *v1beta1.Generated, parts map[string]*corev1.ConfigMap) {
			parts["nto-mc-pool-a"].Labels[v1beta1.PoolLabel] = "pool-b"
		}, waits: "ConfigMap nto-mc-pool-a"},
	} {
		t.Run(name, func(t *testing.T) {
			g, parts := whole(c.Input, mc(c.Input), kubelet(c.Input))
			if test.none {
				g = nil
			} else {
				test.change(g, parts)
			}
			r, waits, err := Render("pool-a", c, g, parts)
			if err != nil || !strings.Contains(waits, test.waits) || (waits == "") != (test.waits == "") || (r.Hash == "") != (waits != "") {
				t.Errorf("got %q, waits for %q, %v", r.Hash, waits, err)
			}
		})
	}
}

// written is what a configuration has: the kernel's arguments, and the content of files by path.
func written(t *testing.T, r Rendered) (arguments []string, files map[string]string) {
	t.Helper()
	config, _, err := ignition.Parse(r.Ignition)
	if err != nil {
		t.Fatal(err)
	}
	for _, argument := range config.KernelArguments.ShouldExist {
		arguments = append(arguments, string(argument))
	}
	files = map[string]string{}
	for _, file := range config.Storage.Files {
		content, err := dataurl.DecodeString(*file.Contents.Source)
		if err != nil {
			t.Fatal(err)
		}
		files[file.Path] = string(content.Data)
	}
	return arguments, files
}

// The unit by which TuneD is before pods is no reason to boot: the hash is that of a configuration that has nothing.
func TestEveryConfigurationHasTheHostsUnit(t *testing.T) {
	r, waits, err := Render("pool-a", configurationOf(t, aPool("pool-a", nil, nil)), nil, nil)
	if err != nil || waits != "" || r.Hash != "4f53cda18c2baa0c" { // that of []
		t.Errorf("got %q, waits for %q, %v", r.Hash, waits, err)
	}
	_, files := written(t, r)
	for path, want := range map[string]string{
		"/etc/systemd/system/partition-tuned.service":                     "Before=kubelet.service\n",
		"/etc/systemd/system/multi-user.target.d/01-partition-tuned.conf": "Wants=partition-tuned.service\n",
	} {
		if !strings.Contains(files[path], want) {
			t.Errorf("%s is %q, without %q", path, files[path], want)
		}
	}
	if analyze, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("no systemd judges the unit: ", err)
	} else {
		root := t.TempDir()
		program := "/var/lib/partition-node/tuned/root/usr/bin/partition-node"
		files[program] = ""
		for path, text := range files {
			if err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755), os.WriteFile(filepath.Join(root, path), []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(root, program), 0o755); err != nil {
			t.Fatal(err)
		}
		if output, err := exec.Command(analyze, "verify", "--root="+root, "--recursive-errors=no", "partition-tuned.service").CombinedOutput(); err != nil || len(output) > 0 {
			t.Errorf("systemd says %v: %s", err, output)
		}
	}
}

func TestWhatIsRendered(t *testing.T) {
	file := func(path, text string) string {
		return fmt.Sprintf("config: {ignition: {version: 3.2.0}, storage: {files: [{path: %s, overwrite: true, contents: {source: 'data:,%s'}}]}}", path, text)
	}
	for name, test := range map[string]struct {
		config    []string
		arguments string
		files     map[string]string
	}{
		"nothing": {files: map[string]string{}},
		"MachineConfigs in the order of their names": {
			config:    []string{"b=" + aMachineConfig("60-b", file("/etc/x", "b")+"\n  kernelArguments: [b=1]"), "a=" + aMachineConfig("40-a", file("/etc/x", "a")+"\n  kernelArguments: [a=1, a2]")},
			arguments: "a=1 a2 b=1", files: map[string]string{"/etc/x": "b"}},
		"one without an Ignition configuration": {config: []string{"a=" + aMachineConfig("40-a", "kernelArguments: [a=1]")}, arguments: "a=1", files: map[string]string{}},
		"arguments that occur again, in their places": {
			config:    []string{"a=" + aMachineConfig("40-a", "kernelArguments: [hugepagesz=1G, hugepages=4, hugepagesz=2M, hugepages=4, audit=0]"), "b=" + aMachineConfig("60-b", "kernelArguments: [audit=0, audit=0, b=1]")},
			arguments: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4 audit=0 audit=0 audit=0 b=1", files: map[string]string{}},
		"a KubeletConfig as the kubelet's drop-in": {
			config: []string{"k=" + aKubeletConfig("numa", "restricted")},
			files:  map[string]string{"/etc/kubernetes/kubelet.conf.d/02-kubeletconfig.conf": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ntopologyManagerPolicy: restricted\n"}},
		"what is used by nobody is left out": {config: []string{"a=apiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata: {name: x}\n"}, files: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			r, waits, err := Render("pool-a", configurationOf(t, aPool("pool-a", nil, test.config)), nil, nil)
			if err != nil || waits != "" {
				t.Fatal(waits, err)
			}
			arguments, files := written(t, r)
			for _, file := range hostUnit {
				delete(files, file.Path)
			}
			if got := strings.Join(arguments, " "); got != test.arguments {
				t.Errorf("the arguments are %q, want %q", got, test.arguments)
			}
			if !maps.Equal(files, test.files) {
				t.Errorf("the files are %q, want %q", files, test.files)
			}
		})
	}
}

// The hash says whether a node reboots: the same input has the same, whatever order it comes in.
func TestTheHashIsThatOfTheInput(t *testing.T) {
	a, b := "a="+aMachineConfig("40-a", "kernelArguments: [a=1]"), "b="+aMachineConfig("60-b", "kernelArguments: [b=1]")
	hash := func(tuning, config []string) string {
		c := configurationOf(t, aPool("pool-a", tuning, config))
		g, parts := whole(c.Input)
		r, waits, err := Render("pool-a", c, g, parts)
		if err != nil || waits != "" {
			t.Fatal(waits, err)
		}
		return r.Hash
	}
	if hash(nil, []string{a, b}) != hash(nil, []string{b, a}) {
		t.Error("the order of references changes the hash")
	}
	if hash(nil, []string{a, b}) == hash(nil, []string{a}) {
		t.Error("a MachineConfig more does not change the hash")
	}
	if hash([]string{"t=" + aTuned("swap", 1)}, []string{a}) != hash([]string{"t=" + aTuned("swap", 2)}, []string{a}) {
		t.Error("a sysctl changes the hash, so nodes would boot for it")
	}
}

func TestCurrentConfiguration(t *testing.T) {
	record := func(booted string, nodes ...string) corev1.ConfigMap {
		r := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1beta1.BootedAnnotation: booted}}, Data: map[string]string{}}
		for _, node := range nodes {
			r.Data[node] = ""
		}
		return r
	}
	for name, test := range map[string]struct {
		before  string
		records []corev1.ConfigMap
		want    string
	}{
		"a new pool has the target":                         {"", nil, "new"},
		"a pool without nodes keeps what it had":            {"old", nil, "old"},
		"all nodes have booted the target":                  {"old", []corev1.ConfigMap{record(`{"n1":"new","n2":"new"}`, "n1", "n2")}, "new"},
		"one has not":                                       {"old", []corev1.ConfigMap{record(`{"n1":"new","n2":"old"}`, "n1", "n2")}, "old"},
		"of one nothing is known":                           {"old", []corev1.ConfigMap{record(`{"n1":"new"}`, "n1", "n2")}, "old"},
		"of a second record's":                              {"old", []corev1.ConfigMap{record(`{"n1":"new"}`, "n1"), record("", "n2")}, "old"},
		"the provider has written something else":           {"old", []corev1.ConfigMap{record("yes", "n1")}, "old"},
		"a node that is not recorded any more has no voice": {"old", []corev1.ConfigMap{record(`{"n1":"new","gone":"old"}`, "n1")}, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Current("new", test.before, Booted(test.records)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// What this companion wrote stays, whatever a later version would render; what somebody else made of it does not.
func TestRenderedSecretsThatStay(t *testing.T) {
	pool := aPool("pool-a", nil, nil).NodePool
	for name, test := range map[string]struct {
		change func(*corev1.Secret)
		want   bool
	}{
		"as it was written":  {func(*corev1.Secret) {}, true},
		"with another value": {func(s *corev1.Secret) { s.Data[v1beta1.ConfigSecretKey] = []byte("{}") }, false},
		"with another key":   {func(s *corev1.Secret) { s.Data["more"] = nil }, false},
		"of another pool":    {func(s *corev1.Secret) { s.Annotations[v1beta1.PoolLabel] = "clusters/other" }, false},
		"without a digest":   {func(s *corev1.Secret) { delete(s.Annotations, digestAnnotation) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := Rendered{Hash: "h", Ignition: []byte(`{"ignition":{"version":"3.3.0"}}`)}
			secret := r.Secret(pool)
			test.change(secret)
			if got := Intact(secret, pool); got != test.want {
				t.Errorf("it stays: %t, want %t", got, test.want)
			}
		})
	}
}
