// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/tuning"
	"workload.openshift.io/operators/tuning/inspect"
)

const tunedFile = `apiVersion: tuned.openshift.io/v1
kind: Tuned
metadata: {name: queues}
spec:
  profile:
  - name: queues
    data: |
      [main]
      include=openshift-node
      [sysctl]
      kernel.msgmnb=65536
  recommend:
  - {profile: queues, priority: 20}
`

// tuned runs a command of tuning against a cluster with two nodes of pool-a.
func tuned(t *testing.T, change func(*tunedv1.Profile, *tunedv1.Tuned), run func(*tuningCommand) error) (code int, out, problem string) {
	t.Helper()
	return tunedNodes(t, [3]string{"pool-a", "pool-a", "pool-b"}, change, run)
}

// tunedNodes runs a command of tuning against a cluster whose nodes n1, n2 and n3 are of these pools. The first two have a Profile.
func tunedNodes(t *testing.T, pools [3]string, change func(*tunedv1.Profile, *tunedv1.Tuned), run func(*tuningCommand) error, more ...runtime.Object) (code int, out, problem string) {
	t.Helper()
	spec := tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: "queues"}, Profile: []tunedv1.TunedProfile{{Name: "queues", Data: "[main]\ninclude=openshift-node\n[sysctl]\nkernel.msgmnb=32768\n"}}}
	hosted := tuning.HostedName("queues", "pool-a")
	profile := &tunedv1.Profile{
		TypeMeta:   metav1.TypeMeta{APIVersion: tunedv1.GroupVersion.String(), Kind: "Profile"},
		ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: "n1", Generation: 3, Annotations: map[string]string{tuning.TunedAnnotation: hosted}},
		Spec:       spec,
		Status: tunedv1.ProfileStatus{TunedProfile: "queues", ObservedGeneration: 3, Conditions: []metav1.Condition{
			{Type: tunedv1.ConditionApplied, Status: metav1.ConditionTrue}, {Type: tunedv1.ConditionDegraded, Status: metav1.ConditionFalse},
		}},
	}
	object := &tunedv1.Tuned{
		TypeMeta:   metav1.TypeMeta{APIVersion: tunedv1.GroupVersion.String(), Kind: "Tuned"},
		ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: hosted, Labels: map[string]string{tunedv1.NodePoolNameLabel: "pool-a"}},
		Spec:       tunedv1.TunedSpec{Profile: spec.Profile, Recommend: []tunedv1.TunedRecommend{{Profile: "queues", Priority: 20}}},
	}
	if change != nil {
		change(profile, object)
	}
	scheme := runtime.NewScheme()
	if err := tunedv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	other := profile.DeepCopy()
	other.Name = "n2"
	node := func(name, pool string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tunedv1.NodePoolLabel: pool}}}
	}
	var output, problems bytes.Buffer
	kube := fake.NewClientset(node("n1", pools[0]), node("n2", pools[1]), node("n3", pools[2]))
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{
		tunedv1.GroupVersion.WithResource("tuneds"): "TunedList", tunedv1.GroupVersion.WithResource("profiles"): "ProfileList",
	}, append(more, profile, other, object)...)
	c := &tuningCommand{streams: genericiooptions.IOStreams{In: strings.NewReader(tunedFile), Out: &output}, kube: kube, objects: objects}
	code = ExitCode(run(c), &problems)
	writesNothing(t, kube.Actions(), objects.Actions())
	return code, output.String(), problems.String()
}

// writesNothing checks that all requests to a cluster read.
func writesNothing(t *testing.T, actions ...[]clienttesting.Action) {
	t.Helper()
	for _, action := range slices.Concat(actions...) {
		if !slices.Contains([]string{"get", "list", "watch"}, action.GetVerb()) {
			t.Errorf("there is a request to %s %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

func TestTuningStatus(t *testing.T) {
	status := func(c *tuningCommand) error { return perform(t, &tuningStatusOptions{tuningCommand: *c}) }
	for name, test := range map[string]struct {
		change func(*tunedv1.Profile, *tunedv1.Tuned)
		want   []string
	}{
		"a node without a Profile": {nil, []string{
			"NODE  NODEPOOL  PROFILE  TUNED            CONFIGMAP     WHY                      APPLIED  DEGRADED",
			"n1    pool-a    queues   queues-c82f3ed1  tuned-pool-a  priority 20, every node  True     False",
			"n3    pool-b    -        -                -             -                        Unknown  Unknown",
			"node n3: it has no Profile yet",
		}},
		"an error of TuneD": {func(p *tunedv1.Profile, _ *tunedv1.Tuned) {
			p.Status.Conditions[1] = metav1.Condition{Type: tunedv1.ConditionDegraded, Status: metav1.ConditionTrue, Message: "TuneD reported errors: no such thing"}
		}, []string{"tuned-pool-a  priority 20, every node  True     True", "node n1: TuneD reported errors: no such thing"}},
		"a status of an older profile": {func(p *tunedv1.Profile, _ *tunedv1.Tuned) { p.Generation = 4 },
			[]string{"priority 20, every node  Unknown  Unknown", "node n1: TuneD has not said anything about this profile yet"}},
		"a tie": {func(p *tunedv1.Profile, _ *tunedv1.Tuned) { p.Annotations[tuning.TieAnnotation] = "other" },
			[]string{"node n1: the profile other has the same priority"}},
		"a ConfigMap that is not valid": {func(_ *tunedv1.Profile, object *tunedv1.Tuned) {
			object.Status.Conditions = []metav1.Condition{{Type: tunedv1.ConditionValid, Status: metav1.ConditionFalse, Message: "document 2, line 9"}}
		}, []string{"Tuned queues-c82f3ed1: document 2, line 9"}},
		"labels of nodes and pods": {func(_ *tunedv1.Profile, object *tunedv1.Tuned) {
			object.Spec.Recommend = []tunedv1.TunedRecommend{
				{Profile: "other", Priority: 10, Match: []tunedv1.TunedMatch{{Label: "fast"}}},
				{Profile: "queues", Priority: 15, Match: []tunedv1.TunedMatch{{Label: "zone", Value: ptr.To("a")}, {Label: "app", Value: ptr.To("db"), Type: tunedv1.MatchPod}}},
			}
		}, []string{"priority 15, by zone=a or app=db of a pod"}},
		"the entry that the node's labels choose": {func(_ *tunedv1.Profile, object *tunedv1.Tuned) {
			object.Spec.Recommend = append(object.Spec.Recommend, tunedv1.TunedRecommend{Profile: "queues", Priority: 5, Match: []tunedv1.TunedMatch{{Label: tunedv1.NodePoolLabel}}})
		}, []string{"priority 5, by hypershift.openshift.io/nodePool"}},
		"the ConfigMap that the NodePool names": {func(_ *tunedv1.Profile, object *tunedv1.Tuned) {
			object.Annotations = map[string]string{v1beta1.SourcesAnnotation: "sysctls"}
		}, []string{"queues-c82f3ed1  sysctls    priority 20, every node"}},
		"an entry that has just gone": {func(_ *tunedv1.Profile, object *tunedv1.Tuned) { object.Spec.Recommend = nil }, []string{"tuned-pool-a  -    True     False"}},
		"control characters":          {func(p *tunedv1.Profile, _ *tunedv1.Tuned) { p.Spec.Config.TunedProfile = "a\x1b[31m" }, []string{`a\x1b[31m`}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, problem := tuned(t, test.change, status)
			if code != 1 || problem != "" {
				t.Errorf("the exit code is %d, and the error %q", code, problem)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("printed was\n%s\nwant %q", out, want)
				}
			}
		})
	}
}

func TestTuningPlan(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "tuned.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	configMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  tuning: |\n    " + strings.ReplaceAll(tunedFile, "\n", "\n    ") + "\n"
	for name, test := range map[string]struct {
		text    string
		code    int
		want    []string
		problem string
	}{
		"a changed value": {tunedFile, 1, []string{
			"2 of the 2 nodes of NodePool pool-a change, within seconds of each other.", "None of them boots.",
			"n1    kernel.msgmnb  32768  65536", "n2    kernel.msgmnb  32768  65536",
		}, ""},
		"a ConfigMap":       {configMap, 1, []string{"n1    kernel.msgmnb  32768  65536"}, ""},
		"nothing":           {strings.ReplaceAll(tunedFile, "65536", "32768"), 0, []string{"0 of the 2 nodes of NodePool pool-a change"}, ""},
		"no Tuned any more": {"", 1, []string{"n1    profile        queues  openshift-node", "n1    kernel.msgmnb  32768   not set here"}, ""},
		"kernel arguments":  {strings.Replace(tunedFile, "kernel.msgmnb=65536", "kernel.msgmnb=32768\n      [bootloader]\n      cmdline_a=+nohz=on", 1), 1, []string{"kernel arguments, cmdline_a  -     +nohz=on", "Whether nodes boot is not known without the management cluster"}, ""},
		"one that is deferred": {
			strings.Replace(tunedFile, "{name: queues}", "{name: queues, annotations: {tuned.openshift.io/deferred: update}}", 1), 1,
			[]string{"2 of them change at their next boot, as tuned.openshift.io/deferred says.", "n1    kernel.msgmnb  32768  65536"}, "",
		},
		"one that is not valid": {strings.Replace(tunedFile, "recommend:", "recomend:", 1), 2, nil, "tuned.yaml: document 1, line 12: unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(test.text)
			code, out, problem := tuned(t, nil, func(c *tuningCommand) error {
				return perform(t, &tuningPlanOptions{tuningCommand: *c, file: path, pool: "pool-a"})
			})
			if code != test.code || !strings.Contains(problem, test.problem) || problem != "" && test.problem == "" {
				t.Errorf("the exit code is %d, want %d, and the error %q", code, test.code, problem)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("printed was\n%s\nwant %q", out, want)
				}
			}
		})
	}
	if code, out, problem := tuned(t, nil, func(c *tuningCommand) error {
		return perform(t, &tuningPlanOptions{tuningCommand: *c, file: "-", pool: "pool-a"})
	}); code != 1 || !strings.Contains(out, "65536") {
		t.Errorf("from standard input: %d, %s, %s", code, out, problem)
	}
}

// blanks between columns.
var blanks = regexp.MustCompile(` +`)

// On an ordinary cluster the Tuneds that its users wrote stay, unless the file has them.
func TestTuningPlanOfAnOrdinaryCluster(t *testing.T) {
	object := func(name string, spec tunedv1.TunedSpec) *tunedv1.Tuned {
		return &tunedv1.Tuned{
			TypeMeta:   metav1.TypeMeta{APIVersion: tunedv1.GroupVersion.String(), Kind: "Tuned"},
			ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: name},
			Spec:       spec,
		}
	}
	boots := func(priority int64) *tunedv1.Tuned {
		return object("boots", tunedv1.TunedSpec{
			Profile:   []tunedv1.TunedProfile{{Name: "boots", Data: "[bootloader]\ncmdline=audit=0\n"}},
			Recommend: []tunedv1.TunedRecommend{{Profile: "boots", Priority: priority}},
		})
	}
	state := func(state string) *tunedv1.Tuned {
		return object("default", tunedv1.TunedSpec{ManagementState: state, Recommend: tuning.Default().Spec.Recommend})
	}
	const profile = "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: edge}\nspec: {cpu: {reserved: '0', isolated: '1'}}\n"
	ordinary := [3]string{}
	for name, test := range map[string]struct {
		pools    [3]string
		text     string
		standing []runtime.Object
		code     int
		want     []string
		problem  string
	}{
		"a changed value": {ordinary, tunedFile, nil, 1, []string{"3 of the 3 nodes change, within seconds of each other.\nNone of them boots.\n", "n1 kernel.msgmnb 32768 65536", "n3 profile - queues"}, ""},
		"a node of a NodePool, which means nothing": {[3]string{"", "", "pool-b"}, tunedFile, nil, 1, []string{"3 of the 3 nodes change"}, ""},
		"another Tuned of a user's that wins":       {ordinary, tunedFile, []runtime.Object{boots(10)}, 1, []string{"n1 profile queues boots"}, ""},
		"another Tuned of a user's that loses":      {ordinary, tunedFile, []runtime.Object{boots(30)}, 1, []string{"n1 kernel.msgmnb 32768 65536"}, ""},
		"kernel arguments":                          {ordinary, "", []runtime.Object{boots(10)}, 1, []string{"None of them boots.\nKernel arguments are reported only on an ordinary cluster: add them to the nodes' boot loaders.", "n1 kernel arguments, cmdline - audit=0"}, ""},
		"an operator that leaves nodes alone":       {ordinary, tunedFile, []runtime.Object{state(tunedv1.Unmanaged)}, 0, []string{"0 of the 3 nodes change", "spec.managementState of the Tuned default is Unmanaged: until it is Managed, Tuneds change no node."}, ""},
		"an operator that tunes no node":            {ordinary, tunedFile, []runtime.Object{state(tunedv1.Removed)}, 0, []string{"spec.managementState of the Tuned default is Removed"}, ""},
		"an operator that acts":                     {ordinary, tunedFile, []runtime.Object{state(tunedv1.Force)}, 1, []string{"3 of the 3 nodes change"}, ""},
		"a profile that another Tuned has, too":     {ordinary, strings.Replace(tunedFile, "metadata: {name: queues}", "metadata: {name: other}", 1), nil, 2, nil, "Tuned queues: spec.profile: the profile queues differs between the Tuneds other and queues"},
		"machineConfigLabels in place of match":     {ordinary, strings.Replace(tunedFile, "priority: 20}", "priority: 20, machineConfigLabels: {a: b}}", 1), nil, 2, nil, "spec.recommend[0].machineConfigLabels"},
		"the operator's own Tuned":                  {ordinary, strings.Replace(tunedFile, "metadata: {name: queues}", "metadata: {name: default}", 1), nil, 2, nil, "Tuned default: the operator writes it, and only its spec.managementState is yours"},
		"a PerformanceProfile":                      {ordinary, profile, nil, 2, nil, "tuned.yaml: PerformanceProfile edge is not used on an ordinary cluster"},
		"a ConfigMap":                               {ordinary, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {tuning: ''}\n", nil, 2, nil, "tuned.yaml: ConfigMaps are not used on an ordinary cluster"},
		"a hosted cluster":                          {[3]string{"pool-a", "pool-a", "pool-b"}, tunedFile, nil, 2, nil, "all nodes are of NodePools, such as n1 of pool-a, so this is a hosted cluster: give --nodepool"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tuned.yaml")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			users := func(profile *tunedv1.Profile, queues *tunedv1.Tuned) {
				queues.Name, queues.Labels = "queues", nil
				queues.Spec = tunedv1.TunedSpec{Profile: profile.Spec.Profile, Recommend: []tunedv1.TunedRecommend{{Profile: "queues", Priority: 20}}}
			}
			code, out, problem := tunedNodes(t, test.pools, users, func(c *tuningCommand) error {
				return perform(t, &tuningPlanOptions{tuningCommand: *c, file: path})
			}, test.standing...)
			if code != test.code || !strings.Contains(problem, test.problem) || problem != "" && test.code != 2 {
				t.Errorf("the exit code is %d, want %d, and the error %q", code, test.code, problem)
			}
			out = blanks.ReplaceAllString(out, " ")
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("printed was\n%s\nwant %q", out, want)
				}
			}
		})
	}
	_, _, problem := tunedNodes(t, ordinary, nil, func(c *tuningCommand) error {
		return perform(t, &tuningPlanOptions{tuningCommand: *c, file: "-", management: managementFlags{namespace: "clusters-hosted"}})
	})
	if !strings.Contains(problem, "--control-plane-namespace is of a hosted cluster: give --nodepool, too") {
		t.Errorf("the error is %q", problem)
	}
}

// What stands in the management cluster says which nodes boot.
func TestTuningPlanOfBoots(t *testing.T) {
	const profile = "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: edge}\nspec: {cpu: {reserved: '0', isolated: '1'}}\n"
	boot := strings.Replace(tunedFile, "      [sysctl]", "      [bootloader]\n      cmdline=audit=0\n      [sysctl]", 1)
	deferred := func(text string) string {
		return strings.Replace(text, "{name: queues}", "{name: queues, annotations: {tuned.openshift.io/deferred: always}}", 1)
	}
	var parts []runtime.Object
	generated := func(arguments ...string) *corev1.ConfigMap {
		made, err := tuning.Parts("pool-a", tuning.Settled{Arguments: arguments}, nil)
		if err != nil {
			t.Fatal(err)
		}
		stands := map[string]string{}
		for _, part := range made {
			part.Namespace = "clusters-hosted"
			stands[part.Name], parts = v1beta1.PartHash(part), append(parts, part)
		}
		data, err := json.Marshal(v1beta1.Generated{Input: "x", Computed: true, Arguments: arguments, Outdated: []string{"audit=1"}, Parts: stands})
		if err != nil {
			t.Fatal(err)
		}
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters-hosted", Name: "generated-pool-a"}, Data: map[string]string{v1beta1.GeneratedKey: string(data)}}
	}
	for name, test := range map[string]struct {
		text   string
		stands func() *corev1.ConfigMap
		want   []string
	}{
		"an argument that comes":            {boot, func() *corev1.ConfigMap { return generated() }, []string{"2 of them boot once, one line at a time:\n  n1\n  n2\n", "kernel argument audit=0 comes"}},
		"an argument that is there":         {tunedFile, func() *corev1.ConfigMap { return generated("audit=0") }, []string{"2 of them boot", "kernel argument audit=0 goes"}},
		"a sysctl":                          {tunedFile, func() *corev1.ConfigMap { return generated() }, []string{"None of them boots."}},
		"a PerformanceProfile":              {tunedFile + "---\n" + profile, func() *corev1.ConfigMap { return generated() }, []string{"2 of them boot", "ConfigMap kubeletconfig-edge-c82f3ed1 comes", "irqaffinity=0 comes"}},
		"what nodes compute":                {strings.Replace(boot, "audit=0", "cpus=${f:exec:nproc}", 1), func() *corev1.ConfigMap { return generated("cpus=4") }, []string{"None of them boots.", "The nodes compute cpus=${f:exec:nproc}. If that is not what it was, this is one more reason"}},
		"nothing has been generated":        {boot, nil, []string{"2 of them boot", "kernel argument audit=0 comes"}},
		"an argument of a deferred profile": {deferred(boot), func() *corev1.ConfigMap { return generated() }, []string{"2 of them boot once", "2 of them change at their next boot"}},
		"what nodes compute of a deferred profile": {
			deferred(strings.Replace(boot, "audit=0", "cpus=${f:exec:nproc}", 1)), func() *corev1.ConfigMap { return generated("cpus=4") },
			[]string{"None of them boots.", "2 of them change at their next boot", "They compute kernel arguments only then, and take a second boot for those that are others."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tuned.yaml")
			text := test.text
			if strings.Contains(text, profile) { // its Tuned must win, or be included
				text = strings.Replace(text, "include=openshift-node", "include=openshift-node-performance-edge", 1)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			parts = nil
			home := fake.NewClientset()
			if test.stands != nil {
				home = fake.NewClientset(append([]runtime.Object{test.stands()}, parts...)...)
			}
			code, out, problem := tuned(t, nil, func(c *tuningCommand) error {
				return perform(t, &tuningPlanOptions{tuningCommand: *c, file: path, pool: "pool-a", management: managementFlags{home: &inspect.Home{Kube: home, Namespace: "clusters-hosted"}}})
			})
			writesNothing(t, home.Actions())
			if code != 1 || problem != "" {
				t.Errorf("the exit code is %d, and the error %q", code, problem)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("printed was\n%s\nwant %q", out, want)
				}
			}
		})
	}

	// A pool whose machines are replaced.
	t.Run("machines that are replaced", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tuned.yaml")
		if err := os.WriteFile(path, []byte(boot), 0o600); err != nil {
			t.Fatal(err)
		}
		pool := &v1beta1.NodePool{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "NodePool"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "pool-a"},
			Spec:       v1beta1.NodePoolSpec{Management: v1beta1.NodePoolManagement{UpgradeType: v1beta1.UpgradeTypeReplace}},
		}
		scheme := runtime.NewScheme()
		if err := v1beta1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters-hosted", Name: v1beta1.TunedConfigMapName("pool-a"), Annotations: map[string]string{v1beta1.PoolLabel: "clusters/pool-a"}}}
		kube, objects := fake.NewClientset(generated(), copied), dynamicfake.NewSimpleDynamicClient(scheme, pool)
		home := &inspect.Home{Kube: kube, Objects: objects, Namespace: "clusters-hosted"}
		plan := func(format string) string {
			code, out, problem := tuned(t, nil, func(c *tuningCommand) error {
				c.format = output.Format(format)
				return perform(t, &tuningPlanOptions{tuningCommand: *c, file: path, pool: "pool-a", management: managementFlags{home: home}})
			})
			if code != 1 || problem != "" {
				t.Errorf("the exit code is %d, and the error %q", code, problem)
			}
			writesNothing(t, kube.Actions(), objects.Actions())
			return out
		}
		if out := plan(""); !strings.Contains(out, "2 of them are replaced by machines that boot with all of it at once, one line at a time:\n  n1\n  n2\n") {
			t.Errorf("printed was\n%s", out)
		}
		var got tuningPlan
		if err := json.Unmarshal([]byte(plan("json")), &got); err != nil || !got.Boots.Replaced || *got.Reboots != 0 || len(got.Boots.Nodes) != 2 {
			t.Errorf("it is %+v, %v", got, err)
		}
	})

	// A Tuned that wins over the PerformanceProfile and leaves it out.
	path := filepath.Join(t.TempDir(), "tuned.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(tunedFile, "priority: 20", "priority: 10", 1)+"---\n"+profile), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, problem := tuned(t, nil, func(c *tuningCommand) error {
		return perform(t, &tuningPlanOptions{tuningCommand: *c, file: path, pool: "pool-a"})
	})
	if code != 2 || !strings.Contains(problem, "the profile queues wins over PerformanceProfile edge: add include=openshift-node-performance-edge") {
		t.Errorf("the exit code is %d, and the error %q", code, problem)
	}

	// A person applies what is outdated, by the hash of what was there.
	home := fake.NewClientset(generated("audit=0"))
	var output bytes.Buffer
	apply := &tuningApplyOptions{streams: genericiooptions.IOStreams{Out: &output}, management: managementFlags{home: &inspect.Home{Kube: home, Namespace: "clusters-hosted"}}}
	if err := perform(t, apply, "pool-a"); err != nil || output.String() != "The nodes of NodePool pool-a boot with: audit=1\n" {
		t.Errorf("got %q, %v", output.String(), err)
	}
	stands, err := home.CoreV1().ConfigMaps("clusters-hosted").Get(t.Context(), "generated-pool-a", metav1.GetOptions{})
	if err != nil || stands.Annotations[v1beta1.ApplyArgumentsAnnotation] != tuning.ArgumentsHash([]string{"audit=1"}) {
		t.Errorf("it has the annotations %v, %v", stands.Annotations, err)
	}
}
