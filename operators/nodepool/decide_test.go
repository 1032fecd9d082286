// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
)

// ours is the control plane's namespace of the cluster clusters/hosted.
var ours = Namespace{Name: "clusters-hosted", HostedCluster: "clusters/hosted"}

// aTuned is a Tuned with one profile of its name, which sets vm.swappiness.
func aTuned(name string, swappiness int) string {
	return fmt.Sprintf(`apiVersion: tuned.openshift.io/v1
kind: Tuned
metadata:
  name: %[1]s
spec:
  profile:
  - name: %[1]s
    data: |
      [sysctl]
      vm.swappiness=%[2]d
  recommend:
  - profile: %[1]s
    priority: 20
`, name, swappiness)
}

// aKubeletConfig has a policy of the topology manager.
func aKubeletConfig(name, policy string) string {
	return fmt.Sprintf(`apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata:
  name: %s
spec:
  kubeletConfig:
    topologyManagerPolicy: %s
`, name, policy)
}

const aPerformanceProfile = "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: fast}\nspec: {cpu: {reserved: '0', isolated: '1'}}\n"

func aMachineConfig(name, spec string) string {
	return fmt.Sprintf("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: %s}\nspec:\n  %s\n", name, spec)
}

// aPool is a pool of the cluster clusters/hosted. A source is CONFIGMAP=VALUE; without a value it is missing. A key other
// than the field's is CONFIGMAP:KEY=VALUE.
func aPool(name string, tuning, config []string, options ...func(*Pool)) Pool {
	pool := Pool{NodePool: &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: name}, Spec: v1beta1.NodePoolSpec{ClusterName: "hosted"}}, Sources: map[string]*corev1.ConfigMap{}}
	for key, sources := range map[string][]string{"tuning": tuning, "config": config} {
		for _, source := range sources {
			name, value, found := strings.Cut(source, "=")
			name, other, isOther := strings.Cut(name, ":")
			reference := corev1.LocalObjectReference{Name: name}
			if key == "tuning" {
				pool.Spec.TuningConfig = append(pool.Spec.TuningConfig, reference)
			} else {
				pool.Spec.Config = append(pool.Spec.Config, reference)
			}
			if isOther {
				key = other
			}
			if found {
				pool.Sources[name] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: name}, Data: map[string]string{key: value}}
			}
		}
	}
	for _, option := range options {
		option(&pool)
	}
	return pool
}

func references(count int) (sources []string) {
	for i := range count {
		sources = append(sources, fmt.Sprintf("cm-%d=%s", i, aTuned(fmt.Sprintf("t-%d", i), i)))
	}
	return sources
}

func TestDecideForOnePool(t *testing.T) {
	long := strings.Repeat("p", 64)
	for name, test := range map[string]struct {
		pool     Pool
		standing []Standing
		copies   []string
		// tuning and config are parts of the conditions' messages; nil is that it is valid.
		tuning, config []string
	}{
		"a pool that asks for nothing is valid": {pool: aPool("pool-a", nil, nil)},
		"a Tuned becomes the pool's ConfigMap":  {pool: aPool("pool-a", []string{"sysctls=" + aTuned("swap", 10)}, nil), copies: []string{"tuned-pool-a"}},
		"a KubeletConfig becomes a copy under its name and the pool's": {
			pool: aPool("pool-a", nil, []string{"numa=" + aKubeletConfig("numa", "single-numa-node")}), copies: []string{"numa-pool-a"}},
		"both are copied": {
			pool:   aPool("pool-a", []string{"sysctls=" + aTuned("swap", 10)}, []string{"numa=" + aKubeletConfig("numa", "restricted")}),
			copies: []string{"numa-pool-a", "tuned-pool-a"}},
		"other machine configuration is valid, and copied nowhere": {
			pool: aPool("pool-a", nil, []string{"mc=apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 50-x}\n"})},
		"a KubeletConfig beside other machine configuration is copied alone": {
			pool:   aPool("pool-a", nil, []string{"mc=apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 50-x}\n---\n" + aKubeletConfig("numa", "none")}),
			copies: []string{"mc-pool-a"}},
		"two Tuneds in one ConfigMap are joined": {
			pool: aPool("pool-a", []string{"sysctls=---\n" + aTuned("z", 1) + "---\n" + aTuned("a", 2)}, nil), copies: []string{"tuned-pool-a"}},
		"an object that kubectl printed is a Tuned": {
			pool: aPool("pool-a", []string{"sysctls=" + strings.Replace(aTuned("swap", 10), "metadata:", "status: {}\nmetadata:\n  uid: x\n  annotations: {a: b}", 1)}, nil), copies: []string{"tuned-pool-a"}},

		"a ConfigMap that is missing is named": {
			pool: aPool("pool-a", []string{"sysctls"}, nil), tuning: []string{"spec.tuningConfig[0]", "no ConfigMap clusters/sysctls", "create it, or remove it"}},
		"a key that is missing is named": {
			pool: aPool("pool-a", []string{"sysctls:tuned=" + aTuned("swap", 10)}, nil), tuning: []string{"ConfigMap clusters/sysctls: it has no key tuning", "its keys are tuned"}},
		"a value without a manifest is named": {
			pool: aPool("pool-a", []string{"sysctls=# nothing\n---\n\n"}, nil), tuning: []string{"ConfigMap clusters/sysctls, key tuning: it has no manifest"}},
		"what is no YAML is named with document and line": {
			pool:   aPool("pool-a", []string{"sysctls=" + aTuned("swap", 10) + "---\n" + strings.Replace(aTuned("more", 1), "  recommend:", " recommend:", 1)}, nil),
			tuning: []string{"ConfigMap clusters/sysctls, key tuning, document 2, line 25: it is no YAML"}},
		"a tab is named with its line": {
			pool:   aPool("pool-a", []string{"sysctls=" + strings.Replace(aTuned("swap", 10), "  profile:", "\tprofile:", 1)}, nil),
			tuning: []string{"document 1, line 6: it is no YAML: found character that cannot start any token"}},
		"a quote that does not end is named where it begins": {
			pool:   aPool("pool-a", []string{"sysctls=" + strings.Replace(aTuned("swap", 10), "profile: swap", "profile: \"swap", 1)}, nil),
			tuning: []string{"document 1, line 12: it is no YAML"}},
		"an unknown field is named with its line": {
			pool:   aPool("pool-a", []string{"sysctls=" + strings.Replace(aTuned("swap", 10), "recommend:", "recomend:", 1)}, nil),
			tuning: []string{`document 1, line 11: unknown field "spec.recomend"`}},
		"a text in the place of a number is named with its line": {
			pool:   aPool("pool-a", []string{"sysctls=" + strings.Replace(aTuned("swap", 10), "priority: 20", "priority: high", 1)}, nil),
			tuning: []string{`document 1, line 13: spec.recommend.priority: Invalid value: string where a whole number is expected`}},
		"a number in the place of a text is named with its line": {
			pool:   aPool("pool-a", []string{"sysctls=" + strings.Replace(aTuned("swap", 10), "profile: swap", "profile: 10", 1)}, nil),
			tuning: []string{`document 1, line 12: spec.recommend.profile: Invalid value: number where a text is expected`}},
		"a field twice is named with its line": {
			pool:   aPool("pool-a", []string{"sysctls=" + aTuned("swap", 10) + "spec: {}\n"}, nil),
			tuning: []string{`document 1, line 14: key "spec" already set`}},
		"a manifest without a kind is named": {
			pool: aPool("pool-a", []string{"sysctls=a: b\n"}, nil), tuning: []string{"document 1, line 1: apiVersion and kind are required"}},
		"a manifest without a name is named": {
			pool: aPool("pool-a", []string{"sysctls=" + strings.Replace(aTuned("swap", 1), "  name: swap\n", "  labels: {}\n", 1)}, nil), tuning: []string{"the Tuned has no metadata.name"}},
		"another kind is named": {
			pool: aPool("pool-a", []string{"sysctls=" + aKubeletConfig("numa", "none")}, nil), tuning: []string{"takes no KubeletConfig of machineconfiguration.openshift.io/v1", "tuned.openshift.io/v1 Tuned"}},
		"and another version of a kind": {
			pool: aPool("pool-a", nil, []string{"numa=" + strings.Replace(aKubeletConfig("numa", "none"), "/v1", "/v1alpha1", 1)}), config: []string{"takes no KubeletConfig of machineconfiguration.openshift.io/v1alpha1"}},
		"a Tuned without priority is named": {
			pool: aPool("pool-a", []string{"sysctls=" + strings.Replace(aTuned("swap", 10), "    priority: 20\n", "", 1)}, nil), tuning: []string{"spec.recommend[0].priority is required"}},
		"one Tuned twice is named with both places": {
			pool:   aPool("pool-a", []string{"one=" + aTuned("swap", 10), "two=" + aTuned("swap", 10)}, nil),
			tuning: []string{"ConfigMap clusters/two, key tuning, document 1, line 1: the Tuned swap is also in ConfigMap clusters/one, document 1"}},
		"one profile with two contents is named with both places": {
			pool:   aPool("pool-a", []string{"one=" + aTuned("swap", 10), "two=" + strings.Replace(aTuned("swap", 60), "  name: swap\n", "  name: other\n", 1)}, nil),
			tuning: []string{"the profile swap of Tuned other is another one than that of Tuned swap in ConfigMap clusters/one, document 1"}},
		"one ConfigMap twice is named": {
			pool: aPool("pool-a", []string{"one=" + aTuned("swap", 10), "one"}, nil), tuning: []string{"spec.tuningConfig[1] names ConfigMap one a second time"}},
		"a name that no ConfigMap has is refused": {
			pool: aPool("pool-a", []string{"../x"}, nil), tuning: []string{`spec.tuningConfig[0].name is "../x"`}},
		"an empty name is refused": {pool: aPool("pool-a", nil, []string{""}), config: []string{`spec.config[0].name is ""`}},
		"ten references are taken": {pool: aPool("pool-a", references(10), nil), copies: []string{"tuned-pool-a"}},
		"eleven references are refused": {
			pool: aPool("pool-a", references(11), nil), tuning: []string{"spec.tuningConfig names 11 ConfigMaps, and takes 10"}},
		"two PerformanceProfiles are named": {
			pool: aPool("pool-a", []string{"one=" + aPerformanceProfile, "two=" + aPerformanceProfile}, nil), tuning: []string{"ConfigMap clusters/two", "one PerformanceProfile", "clusters/one"}},
		"a PerformanceProfile becomes a ConfigMap of its own": {
			pool: aPool("pool-a", []string{"one=" + aPerformanceProfile, "sysctls=" + aTuned("swap", 10)}, nil), copies: []string{"perfprofile-pool-a", "tuned-pool-a"}},
		"a field that a PerformanceProfile has elsewhere is named with its line": {
			pool: aPool("pool-a", []string{"one=" + aPerformanceProfile + "# more\n---\n" + aTuned("x", 1)}, nil, func(p *Pool) {
				p.Sources["one"].Data["tuning"] = strings.Replace(aPerformanceProfile, "spec: {", "spec: {realTimeKernel: {enabled: true}, ", 1)
			}),
			tuning: []string{`document 1, line 4: this version does nothing with the field spec.realTimeKernel of a PerformanceProfile; remove it`}},
		"a CPU in two lists of a PerformanceProfile is named with its field": {
			pool: aPool("pool-a", []string{"one=" + strings.Replace(aPerformanceProfile, "'1'", "0-1", 1)}, nil), tuning: []string{`ConfigMap clusters/one, key tuning, document 1`, `spec.cpu.isolated: Invalid value: "0-1": CPU 0 is in reserved, too`}},
		"a KubeletConfig beside a PerformanceProfile is to be deleted": {
			pool:   aPool("pool-a", []string{"one=" + aPerformanceProfile}, []string{"numa=" + aKubeletConfig("numa", "none")}),
			tuning: []string{}, config: []string{"ConfigMap clusters/numa", "PerformanceProfile fast (ConfigMap clusters/one, document 1) makes one: remove numa"}},
		"a Tuned that takes the profile of a PerformanceProfile is named": {
			pool: aPool("pool-a", []string{"one=" + aPerformanceProfile, "two=" + aTuned("openshift-node-performance-fast", 10)}, nil), tuning: []string{"ConfigMap clusters/two", "PerformanceProfile fast in ConfigMap clusters/one"}},
		"also if it comes first": {
			pool: aPool("pool-a", []string{"two=" + aTuned("openshift-node-performance-fast", 10), "one=" + aPerformanceProfile}, nil), tuning: []string{"ConfigMap clusters/two", "PerformanceProfile fast (ConfigMap clusters/one, document 1)"}},
		"a MachineConfig with a field that is not rendered is named": {
			pool: aPool("pool-a", nil, []string{"mc=" + aMachineConfig("50-x", "kernelType: realtime")}), config: []string{"ConfigMap clusters/mc", `unknown field "spec.kernelType"`, "spec.config and spec.kernelArguments are rendered"}},
		"a MachineConfig that Ignition refuses is named": {
			pool: aPool("pool-a", nil, []string{"mc=" + aMachineConfig("50-x", "config: {ignition: {version: 3.2.0}, storage: {files: [{path: etc/x}]}}")}), config: []string{"ConfigMap clusters/mc", "path not absolute"}},
		"a MachineConfig twice is named": {
			pool: aPool("pool-a", nil, []string{"mc=" + aMachineConfig("50-x", "kernelArguments: [a]") + "---\n" + aMachineConfig("50-x", "kernelArguments: [b]")}), config: []string{"document 2", "another MachineConfig 50-x"}},
		"a MachineConfig with the name of the generated one is named": {
			pool: aPool("pool-a", nil, []string{"mc=" + aMachineConfig("50-nto-pool-a", "kernelArguments: [a]")}), config: []string{"another MachineConfig 50-nto-pool-a; rename this one"}},
		"of two KubeletConfigs the second is to be deleted": {
			pool:   aPool("pool-a", nil, []string{"one=" + aKubeletConfig("a", "none"), "two=" + aKubeletConfig("b", "none")}),
			config: []string{"ConfigMap clusters/two, key config, document 1", "KubeletConfig a (ConfigMap clusters/one, document 1) is there already: remove b"}},
		"but not the one that is in use": {
			pool:     aPool("pool-a", nil, []string{"one=" + aKubeletConfig("a", "none"), "two=" + aKubeletConfig("b", "none")}),
			standing: []Standing{{Name: "two-pool-a", Annotations: map[string]string{v1beta1.PoolLabel: "clusters/pool-a"}}},
			config:   []string{"ConfigMap clusters/one, key config, document 1", "KubeletConfig b (ConfigMap clusters/two, document 1) is there already: remove a"}},
		"two KubeletConfigs in one ConfigMap are named": {
			pool:   aPool("pool-a", nil, []string{"one=" + aKubeletConfig("a", "none") + "---\n" + aKubeletConfig("b", "none")}),
			config: []string{"ConfigMap clusters/one, key config, document 2", "remove b"}},
		"an invalid half keeps the other from being copied": {
			pool:   aPool("pool-a", []string{"sysctls"}, []string{"numa=" + aKubeletConfig("numa", "none")}),
			tuning: []string{"no ConfigMap"}, config: []string{}},
		"a name that no label takes is refused": {
			pool: aPool(long, nil, nil), tuning: []string{"metadata.name " + long + " has 64 characters"}, config: []string{"has 64 characters"}},
		"a control plane's namespace that cannot exist is named": {
			pool:   aPool("pool-a", nil, nil, func(p *Pool) { p.Spec.ClusterName = long }),
			tuning: []string{"the control plane's namespace clusters-" + long + " cannot exist"}, config: []string{"cannot exist"}},
		"what stands in a copy's place is not overwritten": {
			pool: aPool("pool-a", nil, []string{"numa=" + aKubeletConfig("numa", "none")}), standing: []Standing{{Name: "numa-pool-a"}},
			tuning: []string{}, config: []string{"ConfigMap clusters-hosted/numa-pool-a", "is somebody else's", "rename ConfigMap clusters/numa"}},
		"nor is another pool's copy": {
			pool:     aPool("pool-a", nil, []string{"numa=" + aKubeletConfig("numa", "none")}),
			standing: []Standing{{Name: "numa-pool-a", Annotations: map[string]string{v1beta1.PoolLabel: "clusters/a"}}},
			tuning:   []string{}, config: []string{"is NodePool clusters/a's"}},
		"what another version has copied is taken over": {
			pool:     aPool("pool-a", nil, []string{"numa=" + aKubeletConfig("numa", "none")}),
			standing: []Standing{{Name: "numa-pool-a", Labels: map[string]string{v1beta1.KubeletConfigLabel: "true", v1beta1.PoolLabel: "pool-a"}}},
			copies:   []string{"numa-pool-a"}},
		"a copy that has the name of the pool's Tuneds is a conflict": {
			pool:   aPool("pool-a", []string{"sysctls=" + aTuned("swap", 10)}, []string{"tuned=" + aKubeletConfig("numa", "none")}),
			tuning: []string{"ConfigMap clusters-hosted/tuned-pool-a would be the copy of spec.tuningConfig, and that of ConfigMap clusters/tuned"}, config: []string{"rename one of them"}},
		"more than a ConfigMap takes is refused": {
			pool: aPool("pool-a", []string{"a=" + aTuned("a", 1) + "# " + strings.Repeat("x", 1<<19), "b=" + aTuned("b", 1) + "# " + strings.Repeat("x", 1<<19)}, nil), tuning: []string{"a ConfigMap takes 1044480"}},
		"a pool that is paused has no verdict": {pool: aPool("pool-a", []string{"sysctls"}, nil, func(p *Pool) { p.Paused = true })},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := v1beta1.ControlPlaneNamespace(test.pool.Namespace, test.pool.Spec.ClusterName)
			d := Decide(Namespace{Name: namespace, HostedCluster: test.pool.Namespace + "/" + test.pool.Spec.ClusterName}, []Pool{test.pool}, test.standing)
			if got := names(d.Copies); !slices.Equal(got, test.copies) {
				t.Errorf("the copies are %q, want %q", got, test.copies)
			}
			verdict, judged := d.Verdicts[types.NamespacedName{Namespace: "clusters", Name: test.pool.Name}]
			if judged == test.pool.Paused {
				t.Fatalf("there is a verdict: %t", judged)
			}
			if !judged {
				return
			}
			for field, half := range map[string]struct {
				got  Finding
				want []string
			}{"tuning": {verdict.Tuning, test.tuning}, "config": {verdict.Config, test.config}} {
				if half.got.Valid != (len(half.want) == 0) {
					t.Errorf("%s is valid: %t, with %q", field, half.got.Valid, half.got.Message)
				}
				for _, want := range half.want {
					if !strings.Contains(half.got.Message, want) {
						t.Errorf("the message of %s is\n%s\nwithout\n%s", field, half.got.Message, want)
					}
				}
				if half.want != nil && len(half.want) == 0 && half.got.Reason != v1beta1.ReasonPoolConfigurationInvalid {
					t.Errorf("the reason of %s is %s", field, half.got.Reason)
				}
			}
			own := Standing{Name: "old", Annotations: map[string]string{v1beta1.PoolLabel: test.pool.key()}}
			if gone, want := d.Gone(own), judged && verdict.Usable(); gone != want {
				t.Errorf("an old copy of it goes: %t, want %t", gone, want)
			}
		})
	}
}

func names(copies []*corev1.ConfigMap) (names []string) {
	for _, copied := range copies {
		names = append(names, copied.Name)
	}
	slices.Sort(names)
	return names
}

func TestWhatACopyHas(t *testing.T) {
	d := Decide(ours, []Pool{aPool("pool-a", []string{"two=\r\n--- # theirs\n" + aTuned("z", 1) + "...\n", "one=" + aTuned("a", 2)}, []string{"numa=\n\n" + aKubeletConfig("numa", "restricted") + "\n\n"})}, nil)
	if len(d.Copies) != 2 {
		t.Fatalf("there are %d copies: %v", len(d.Copies), d.Verdicts)
	}
	tuned, kubelet := d.Copies[0], d.Copies[1]
	if want := aTuned("a", 2) + "---\n" + "    # theirs\n" + aTuned("z", 1); tuned.Data["tuning"] != want {
		t.Errorf("the Tuneds are\n%s\nwant\n%s", tuned.Data["tuning"], want)
	}
	if want := aKubeletConfig("numa", "restricted"); kubelet.Data["config"] != want {
		t.Errorf("the KubeletConfig is\n%s\nwant\n%s", kubelet.Data["config"], want)
	}
	for _, test := range []struct {
		copied *corev1.ConfigMap
		want   string
	}{
		{tuned, "map[hypershift.openshift.io/nodePool:pool-a hypershift.openshift.io/tuned-config:true] map[hypershift.openshift.io/nodePool:clusters/pool-a nodepool.workload.openshift.io/sources:a=one,z=two] clusters-hosted\n"},
		{kubelet, "map[hypershift.openshift.io/kubeletconfig-config: hypershift.openshift.io/nodePool:pool-a] map[hypershift.openshift.io/nodePool:clusters/pool-a nodepool.workload.openshift.io/sources:numa] clusters-hosted\n"},
	} {
		if got := fmt.Sprintln(test.copied.Labels, test.copied.Annotations, test.copied.Namespace); got != test.want {
			t.Errorf("the copy %s has\n%s\nwant\n%s", test.copied.Name, got, test.want)
		}
	}
}

// B3: conditions of one pool come from its own objects alone.
func TestPoolsBesideEachOther(t *testing.T) {
	for name, test := range map[string]struct {
		pools         []Pool
		standing      []Standing
		copies, valid []string
	}{
		"two pools share a source": {
			pools:  []Pool{aPool("a", []string{"s=" + aTuned("swap", 1)}, nil), aPool("b", []string{"s=" + aTuned("swap", 1)}, nil)},
			copies: []string{"tuned-a", "tuned-b"}, valid: []string{"clusters/a", "clusters/b"}},
		"an invalid pool does not stop the other": {
			pools:  []Pool{aPool("a", []string{"s=}"}, nil), aPool("b", []string{"s=" + aTuned("swap", 1)}, nil)},
			copies: []string{"tuned-b"}, valid: []string{"clusters/b"}},
		"two names that are one are a conflict on both": {
			pools:  []Pool{aPool("c", nil, []string{"a-b=" + aKubeletConfig("x", "none")}), aPool("b-c", nil, []string{"a=" + aKubeletConfig("y", "none")}), aPool("d", nil, []string{"a=" + aKubeletConfig("y", "none")})},
			copies: []string{"a-d"}, valid: []string{"clusters/d"}},
		"and the copy that is there stays": {
			pools:    []Pool{aPool("c", nil, []string{"a-b=" + aKubeletConfig("x", "none")}), aPool("b-c", nil, []string{"a=" + aKubeletConfig("y", "none")})},
			standing: []Standing{{Name: "a-b-c", Annotations: map[string]string{v1beta1.PoolLabel: "clusters/c"}}}},
		"a cluster with the namespace of another one gets nothing there": {
			pools:  []Pool{aPool("p", []string{"s=" + aTuned("swap", 1)}, nil), aPool("p", []string{"s=" + aTuned("swap", 2)}, nil, func(p *Pool) { p.Namespace = "other" })},
			copies: []string{"tuned-p"}, valid: []string{"clusters/p"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(ours, test.pools, test.standing)
			if got := names(d.Copies); !slices.Equal(got, test.copies) {
				t.Errorf("the copies are %q, want %q", got, test.copies)
			}
			var valid []string
			for pool, verdict := range d.Verdicts {
				if verdict.Usable() {
					valid = append(valid, pool.String())
				}
			}
			if slices.Sort(valid); !slices.Equal(valid, test.valid) {
				t.Errorf("usable are %q, want %q; %v", valid, test.valid, d.Verdicts)
			}
			for _, s := range test.standing {
				if d.Gone(s) {
					t.Errorf("%s goes", s.Name)
				}
			}
		})
	}
}

// B7: a node that replaces another one joins without the labels that people have put on that, and it never boots a second time.
func TestWhatNewNodesLack(t *testing.T) {
	never := strings.Replace(aTuned("wait", 1), "metadata:", "metadata:\n  annotations: {tuned.openshift.io/deferred: always}", 1)
	matching := strings.Replace(aTuned("swap", 1), "    priority: 20\n", "    priority: 20\n    match:\n    - label: database\n      match:\n      - {label: app, type: pod}\n    - label: kubernetes.io/arch\n", 1)
	for name, test := range map[string]struct {
		change func(*v1beta1.NodePoolSpec)
		want   string
	}{
		"nodes are replaced": {func(s *v1beta1.NodePoolSpec) { s.Management.UpgradeType = v1beta1.UpgradeTypeReplace }, "database of Tuned swap; add them to spec.nodeLabels"},
		"nodes are replaced, and have labels": {func(s *v1beta1.NodePoolSpec) {
			s.Management.UpgradeType, s.NodeLabels = v1beta1.UpgradeTypeReplace, map[string]string{"database": ""}
		}, ""},
		"nodes are replaced, and a profile waits for their boots": {func(s *v1beta1.NodePoolSpec) { s.Management.UpgradeType = v1beta1.UpgradeTypeReplace },
			"and a node never boots a second time, which the annotation tuned.openshift.io/deferred=always of these Tuneds waits for: wait; remove it"},
		"nodes stay": {func(s *v1beta1.NodePoolSpec) { s.Management.UpgradeType = v1beta1.UpgradeTypeInPlace }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sources := []string{"s=" + matching}
			if strings.Contains(test.want, "wait") {
				sources = append(sources, "w="+never)
			}
			d := Decide(ours, []Pool{aPool("a", sources, nil, func(p *Pool) { test.change(&p.Spec) })}, nil)
			got := d.Verdicts[types.NamespacedName{Namespace: "clusters", Name: "a"}]
			if !got.Usable() || test.want == "" && got.Tuning.Message != "" || !strings.Contains(got.Tuning.Message, test.want) {
				t.Errorf("got %+v, want a message with %q", got, test.want)
			}
		})
	}
}

func TestTheControlPlanesNamespace(t *testing.T) {
	for name, test := range map[string]struct {
		namespace Namespace
		valid     bool
		reason    string
		message   string
	}{
		"it is this cluster's":         {ours, true, v1beta1.ReasonAsExpected, ""},
		"it is another cluster's":      {Namespace{Name: "clusters-hosted", HostedCluster: "clusters-a/b"}, false, v1beta1.ReasonNotControlPlane, "namespace clusters-hosted is the control plane of clusters-a/b by its annotation nodepool.workload.openshift.io/hosted-cluster, and not of clusters/hosted"},
		"nobody said whose it is":      {Namespace{Name: "clusters-hosted"}, false, v1beta1.ReasonNotControlPlane, "is the control plane of no hosted cluster"},
		"it is not there":              {Namespace{Name: "clusters-hosted", Missing: true}, true, v1beta1.ReasonControlPlaneNamespaceMissing, "once the control plane's namespace clusters-hosted is there"},
		"it is being deleted just now": {Namespace{Name: "clusters-hosted", HostedCluster: "clusters/hosted", Missing: true}, true, v1beta1.ReasonControlPlaneNamespaceMissing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(test.namespace, []Pool{aPool("a", []string{"s=" + aTuned("swap", 1)}, nil)}, nil)
			verdict := d.Verdicts[types.NamespacedName{Namespace: "clusters", Name: "a"}]
			for _, finding := range []Finding{verdict.Tuning, verdict.Config} {
				if finding.Valid != test.valid || finding.Reason != test.reason || !strings.Contains(finding.Message, test.message) {
					t.Errorf("got %+v", finding)
				}
			}
			if copied := len(d.Copies) > 0; copied != test.valid {
				t.Errorf("there are %d copies", len(d.Copies))
			}
		})
	}
}

func TestACopyOfNoPoolGoes(t *testing.T) {
	d := Decide(ours, []Pool{aPool("a", []string{"missing"}, nil)}, nil)
	for name, test := range map[string]struct {
		copied Standing
		want   bool
	}{
		"its pool is gone": {Standing{Annotations: map[string]string{v1beta1.PoolLabel: "clusters/b"}}, true},
		"its pool has the name, and another namespace":    {Standing{Annotations: map[string]string{v1beta1.PoolLabel: "other/a"}}, true},
		"its pool is invalid":                             {Standing{Annotations: map[string]string{v1beta1.PoolLabel: "clusters/a"}}, false},
		"the annotation is lost, and its pool is invalid": {Standing{Labels: map[string]string{v1beta1.PoolLabel: "a"}}, false},
		"the annotation is lost, and its pool is gone":    {Standing{Labels: map[string]string{v1beta1.PoolLabel: "b"}}, true},
	} {
		if got := d.Gone(test.copied); got != test.want {
			t.Errorf("%s: it goes: %t, want %t", name, got, test.want)
		}
	}
}

func TestPausedUntil(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]string{
		"true": "true 0001-01-01", "false": "false 0001-01-01", "tomorrow": "false 0001-01-01",
		"2026-12-02T00:00:00Z": "true 2026-12-02", "2026-11-30T00:00:00Z": "false 2026-11-30",
	} {
		if paused, until := PausedUntil(ptr.To(value), now); fmt.Sprint(paused, " ", until.Format(time.DateOnly)) != want {
			t.Errorf("%s: got %t until %s, want %s", value, paused, until, want)
		}
	}
	if paused, _ := PausedUntil(nil, now); paused {
		t.Error("a pool without the field is paused")
	}
}

func FuzzManifests(f *testing.F) {
	f.Add(aTuned("a", 1) + "---\n" + aTuned("b", 2))
	f.Add("--- {a: b}\n...\n%YAML 1.2\n---\n- x\n")
	f.Add("a: &x [*x]\n")
	f.Fuzz(func(t *testing.T, value string) {
		if len(value) > 1<<12 {
			t.Skip()
		}
		d := Decide(ours, []Pool{aPool("a", []string{"s=" + value}, []string{"s"})}, nil)
		verdict := d.Verdicts[types.NamespacedName{Namespace: "clusters", Name: "a"}]
		if !verdict.Tuning.Valid && verdict.Tuning.Message == "" {
			t.Error("it is invalid, and nothing says why")
		}
		for _, copied := range d.Copies {
			// What is valid stays so when it is read from the copy.
			again := Decide(ours, []Pool{aPool("a", []string{"s=" + copied.Data["tuning"]}, nil)}, nil)
			if len(again.Copies) != 1 || again.Copies[0].Data["tuning"] != copied.Data["tuning"] {
				t.Errorf("%q becomes\n%q, which becomes\n%v", value, copied.Data["tuning"], again)
			}
		}
	})
}
