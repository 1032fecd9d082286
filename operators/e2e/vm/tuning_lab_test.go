// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/operators/e2e/internal/rig"
	"workload.openshift.io/operators/internal/provider"
)

// management is the management cluster: processes of this host, next to the VM whose cluster is the hosted one.
func management() *host.Cluster {
	config := host.Config{Bin: files.Bin, Tools: files.Tools, Tree: files.Tree, Progress: progress}.Beside(1)
	config.Paths = host.Paths{Data: filepath.Join(vm.Dir, "management"), Run: "/run/workload-partitioning-vms"}
	return host.New(config)
}

// lab is a NodePool of one real machine: a VM that is a node of the hosted cluster, a management cluster, and a provider that boots
// the VM with what the pool is to have. The first lab's VM has the hosted cluster.
type lab struct {
	*node
	site *site
	// pool is the name of the NodePool.
	pool       string
	management *host.Cluster
	home       *rig.Cluster
	provider   *provider.Provider
	// other is the lab of the second machine, once a row has asked for it.
	other *lab
	// has is the pool's configuration.
	has configuration
	// bare are the kernel arguments of a machine without a configuration.
	bare []string
	// down is how long each boot took, from the order to a node that is Ready.
	down []time.Duration
}

// configuration is what a NodePool names: a Tuned and a PerformanceProfile in tuningConfig, and a MachineConfig in config. An empty text
// is none. Its nodes then have a profile of TuneD.
type configuration struct{ name, profile, tuned, performance, config string }

// newLab boots the VM, and starts everything else as make up-hosted does. The pool then has no configuration.
func newLab(s *site) *lab {
	t := s.t
	n := s.start("tuning", topology, host.Config{CPUManagerPolicy: "none"})
	// Each boot is then in the journal.
	n.Run(t, "mkdir -p /var/log/journal && journalctl --flush")
	n.prepare(t)
	n.CreateNamespace(t)
	m := management()
	if err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, name := range []string{"nodepool", "hostedconfig", "tuning"} {
			log, err := os.ReadFile(filepath.Join(m.Config.Paths.Data, "logs", name+".log"))
			t.Logf("%s (%v):\n%s", name, err, log[max(0, len(log)-8192):])
		}
	})
	repository, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{node: n, site: s, pool: "pool-a", management: m, home: &rig.Cluster{Client: m.Client, Kubectl: n.Kubectl, Kubeconfig: m.Config.Paths.Kubeconfig(), Pause: n.Pause, Limit: n.Limit}}
	progress("starting the companions of the management side")
	scripts := rig.Scripts{Repository: repository, Hosted: n.Kubeconfig, Management: l.home.Kubeconfig, Programs: m.Config.Paths}
	if _, err := scripts.Run("up-hosted.sh", []string{"PATIENCE=300s"}, controller, n.Kubectl, n.Name); err != nil {
		t.Fatal(err)
	}
	if l.provider, err = provider.Connect(l.home.Kubeconfig, n.Kubeconfig, "clusters"); err != nil {
		t.Fatal(err)
	}
	l.provider.Boot = l.boot
	l.configure(t, nothing)
	l.home.WaitFor(t, n.Limit, "the pool has a configuration to boot with", func() error {
		_, err := l.rendered(t)
		return err
	})
	if err := l.provider.Join(t.Context(), n.Name, l.pool); err != nil {
		t.Fatal(err)
	}
	// On a new machine the unit of the host is there before the operand.
	n.Call(t, "delete", "pods", "--namespace=openshift-cluster-node-tuning-operator", "--selector=openshift-app=tuned")
	l.settle(t)
	l.bare = l.arguments(t)
	return l
}

// second returns a second machine, which has fewer CPUs, in the pool of the first.
func (l *lab) second(t *testing.T) *lab {
	t.Helper()
	if l.other != nil {
		return l.other
	}
	n := l.site.boot(2, vm.Topology{Sockets: 1, Cores: 2, Threads: 1})
	n.Cluster = l.Cluster
	if err := n.vm.Join(t.Context(), l.vm, host.Config{CPUManagerPolicy: "none"}); err != nil {
		t.Fatal(err)
	}
	n.Run(t, "mkdir -p /var/log/journal && journalctl --flush")
	n.prepare(t)
	other := &lab{node: n, pool: l.pool, management: l.management, home: l.home, provider: l.provider, has: l.has}
	other.bare = other.arguments(t)
	l.provider.Boot = func(ctx context.Context, before, next *provider.Machine) (string, error) {
		if next.Name == other.Name {
			return other.boot(ctx, before, next)
		}
		return l.boot(ctx, before, next)
	}
	if err := l.provider.Join(t.Context(), other.Name, other.pool); err != nil {
		t.Fatal(err)
	}
	other.settle(t)
	l.other = other
	return other
}

// boot changes the VM from what it has booted before to what it is to boot next, with one boot. It plays what a provider has in its
// machines' image: it writes files and the boot loader's arguments.
func (l *lab) boot(ctx context.Context, before, next *provider.Machine) (id string, err error) {
	began := time.Now()
	for _, unit := range before.Units {
		if !slices.Contains(next.Units, unit) {
			if _, err := l.vm.Run(ctx, "systemctl disable "+unit); err != nil {
				return "", err
			}
		}
	}
	for path := range before.Files {
		if _, stays := next.Files[path]; !stays {
			if _, err := l.vm.Run(ctx, "rm '"+path+"'"); err != nil {
				return "", err
			}
		}
	}
	for path, content := range next.Files {
		if err := l.vm.Write(ctx, path, []byte(content)); err != nil {
			return "", err
		}
		if _, err := l.vm.Run(ctx, fmt.Sprintf("chmod %o '%s'", next.Modes[path], path)); err != nil {
			return "", err
		}
	}
	if len(next.Units) > 0 {
		if _, err := l.vm.Run(ctx, "systemctl enable "+strings.Join(next.Units, " ")); err != nil {
			return "", err
		}
	}
	if before.Config == "" && len(next.Arguments) == 0 {
		return l.bootID(ctx) // a new machine has its files before its first boot is over
	}
	// A kubelet does not start under another policy than that of its checkpoints.
	if _, err := l.vm.Run(ctx, fmt.Sprintf("systemctl stop kubelet && rm -f %[1]s/cpu_manager_state %[1]s/memory_manager_state", l.KubeletDir)); err != nil {
		return "", err
	}
	if err := l.vm.Shutdown(ctx); err != nil {
		return "", err
	}
	l.vm.Config.Append = strings.Join(next.Arguments, " ")
	if err := l.vm.Boot(ctx); err != nil {
		return "", err
	}
	if id, err = l.bootID(ctx); err != nil {
		return "", err
	}
	err = poll.Until(ctx, l.Pause, l.Limit, func(ctx context.Context) error {
		object, err := l.Client.CoreV1().Nodes().Get(ctx, l.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if object.Status.NodeInfo.BootID != id || !ready {
			return fmt.Errorf("the node reports boot %s and the conditions %v; the kernel's is %s", object.Status.NodeInfo.BootID, object.Status.Conditions, id)
		}
		return nil
	})
	l.down = append(l.down, time.Since(began))
	progress("%s is Ready %s after the order to boot", l.Name, time.Since(began).Round(time.Second))
	return id, err
}

// renew makes the VM a machine of no pool: it boots without anything of its pool, and its Node goes.
func (l *lab) renew(t *testing.T) {
	t.Helper()
	if _, err := l.boot(t.Context(), l.provider.Machines[l.Name], &provider.Machine{Name: l.Name}); err != nil {
		t.Fatal(err)
	}
	delete(l.provider.Machines, l.Name)
	l.Call(t, "delete", "node", l.Name)
}

func (l *lab) bootID(ctx context.Context) (string, error) {
	return l.vm.Run(ctx, "cat /proc/sys/kernel/random/boot_id")
}

// boots returns the IDs of the VM's boots, the present one last, as systemd's journal has them.
func (l *lab) boots(t *testing.T) (ids []string) {
	t.Helper()
	for line := range strings.Lines(l.Run(t, "journalctl --list-boots --no-pager --quiet")) {
		if fields := strings.Fields(line); len(fields) > 1 && len(fields[1]) == 32 {
			ids = append(ids, fields[1])
		}
	}
	now, err := l.bootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) == 0 || ids[len(ids)-1] != strings.ReplaceAll(now, "-", "") {
		t.Fatalf("the journal has the boots %q, and the kernel's is %s", ids, now)
	}
	return ids
}

// reconfigure replaces a text in the configuration of a companion, and restarts it.
func (l *lab) reconfigure(t *testing.T, companion, from, to string) {
	t.Helper()
	path := filepath.Join(filepath.Dir(l.Kubeconfig), "companions", companion+".yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), from) {
		t.Fatalf("%s is\n%s\nwithout %s", path, text, from)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), from, to)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.management.Restart(t.Context(), companion); err != nil {
		t.Fatal(err)
	}
}

// configure gives the pool a configuration.
func (l *lab) configure(t *testing.T, c configuration) {
	t.Helper()
	references := map[string][]corev1.LocalObjectReference{}
	for _, source := range []struct{ name, key, field, text string }{
		{c.name, "tuning", "tuningConfig", c.tuned}, {c.name + "-performance", "tuning", "tuningConfig", c.performance}, {c.name + "-config", "config", "config", c.config},
	} {
		references[source.field] = append([]corev1.LocalObjectReference{}, references[source.field]...)
		if source.text == "" {
			continue
		}
		manifest, err := json.Marshal(corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: source.name},
			Data:       map[string]string{source.key: source.text},
		})
		if err != nil {
			t.Fatal(err)
		}
		if output, err := l.home.Try(t, string(manifest), "apply", "--filename=-"); err != nil {
			t.Fatal(output, err)
		}
		references[source.field] = append(references[source.field], corev1.LocalObjectReference{Name: source.name})
	}
	patch, err := json.Marshal(map[string]any{"spec": references})
	if err != nil {
		t.Fatal(err)
	}
	l.home.Call(t, "patch", "nodepool", "--namespace=clusters", l.pool, "--type=merge", "--patch="+string(patch))
	l.has = c
}

// have gives the pool a configuration that a row begins with, unless it has it.
func (l *lab) have(t *testing.T, c configuration) {
	t.Helper()
	if l.has != c {
		l.configure(t, c)
		l.settle(t)
	}
}

// target is the annotation of a NodePool with the hash of what its machines are to boot with.
const target = "hypershift.openshift.io/nodePoolTargetConfigVersion"

// rendered returns the NodePool once its target is what its spec asks for.
func (l *lab) rendered(t *testing.T) (pool metav1.ObjectMeta, err error) {
	t.Helper()
	var object struct {
		Metadata metav1.ObjectMeta
		Status   struct {
			Conditions []struct {
				Type, Status, Message string
				ObservedGeneration    int64
			}
		}
	}
	if err := json.Unmarshal([]byte(l.home.Call(t, "get", "nodepool", "--namespace=clusters", l.pool, "--output=json")), &object); err != nil {
		return pool, err
	}
	for _, c := range object.Status.Conditions {
		if c.Type == "ConfigurationRendered" && c.Status == "True" && c.ObservedGeneration == object.Metadata.Generation {
			return object.Metadata, nil
		}
	}
	return pool, fmt.Errorf("the NodePool of generation %d has the annotations %v and the conditions %+v", object.Metadata.Generation, object.Metadata.Annotations, object.Status.Conditions)
}

// settle has the provider do its part until the pool's node has what the pool asks for, and TuneD has applied the profile. Whatever
// comes after that, such as a TuneD that starts again, must leave no error.
func (l *lab) settle(t *testing.T) {
	t.Helper()
	l.WaitFor(t, l.SwitchLimit, "the pool's node has its configuration", func() error {
		if _, err := l.provider.Step(t.Context()); err != nil {
			return err
		}
		pool, err := l.rendered(t)
		if err != nil {
			return err
		}
		const current = "hypershift.openshift.io/nodePoolCurrentConfigVersion"
		if pool.Annotations[target] == "" || pool.Annotations[target] != pool.Annotations[current] {
			return fmt.Errorf("the NodePool has the annotations %v", pool.Annotations)
		}
		_, err = l.applied(t)
		return err
	})
	if err := poll.Until(t.Context(), l.Pause, time.Minute, func(context.Context) error {
		degraded, err := l.applied(t)
		if degraded != "" {
			err = errors.New(degraded)
		}
		return err
	}); err != nil {
		t.Errorf("the Profile is degraded: %v", err)
	}
}

// applied returns nil if TuneD says that it has applied the profile of the node, and why that is degraded; empty if it is not.
func (l *lab) applied(t *testing.T) (degraded string, err error) {
	t.Helper()
	var profile struct {
		Metadata metav1.ObjectMeta
		Spec     struct{ Config struct{ TunedProfile string } }
		Status   struct {
			ObservedGeneration int64
			Conditions         []metav1.Condition
		}
	}
	output, err := l.Try(t, "", "get", "profile", "--namespace=openshift-cluster-node-tuning-operator", l.Name, "--output=json")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	if err := json.Unmarshal([]byte(output), &profile); err != nil {
		return "", err
	}
	applied := false
	for _, c := range profile.Status.Conditions {
		switch {
		case c.Type == "Applied":
			applied = c.Status == metav1.ConditionTrue
		case c.Type == "Degraded" && c.Status == metav1.ConditionTrue:
			degraded = c.Reason + ": " + c.Message
		}
	}
	if !applied || profile.Status.ObservedGeneration != profile.Metadata.Generation || profile.Spec.Config.TunedProfile != l.has.profile {
		return "", fmt.Errorf("the Profile of generation %d is %s and has the status %+v, want %s", profile.Metadata.Generation, profile.Spec.Config.TunedProfile, profile.Status, l.has.profile)
	}
	return degraded, nil
}

// plan is what kubectl partition tuning plan says of boots.
type plan struct {
	Reboots *int
	Boots   struct {
		Nodes   [][]string
		Reasons []string
	}
}

// foretell asks kubectl partition tuning plan about a configuration of the pool.
func (l *lab) foretell(t *testing.T, c configuration) (p plan) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	if err := os.WriteFile(file, []byte(strings.Trim(c.tuned+"\n---\n"+c.performance, "-\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), plugin, "tuning", "plan", "--filename="+file, "--nodepool="+l.pool, "--kubeconfig="+l.Kubeconfig,
		"--management-kubeconfig="+l.home.Kubeconfig, "--control-plane-namespace=clusters-hosted", "--output=json")
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // something changes
		err = nil
	}
	if err == nil {
		err = json.Unmarshal(output, &p)
	}
	if err != nil || p.Reboots == nil {
		t.Fatalf("kubectl partition tuning plan: %v: %s%s", err, output, stderr.String())
	}
	return p
}

// change gives the pool another configuration, counts what that boots, and compares it with what was foretold.
func (l *lab) change(t *testing.T, c configuration, want int) {
	t.Helper()
	foretold := l.foretell(t, c)
	before, down, began := l.boots(t), len(l.down), time.Now()
	l.configure(t, c)
	l.settle(t)
	after := l.boots(t)
	if len(after) < len(before) || !slices.Equal(after[:len(before)], before) {
		t.Fatalf("the boots were %q, and are %q", before, after)
	}
	t.Logf("%s: %d new boot IDs, foretold %d (%s), settled after %s, of which %s to the node that is Ready again; accelerator %s", c.name, len(after)-len(before), *foretold.Reboots,
		strings.Join(foretold.Boots.Reasons, "; "), time.Since(began).Round(time.Second), l.down[down:], l.vm.Accelerator())
	if got := len(after) - len(before); got != want || *foretold.Reboots != want {
		t.Errorf("the machine has booted %d times, and foretold was %+v, want %d", got, foretold, want)
	}
	var nodes []string
	if want > 0 {
		nodes = []string{l.Name}
	}
	if got := slices.Concat(foretold.Boots.Nodes...); !slices.Equal(got, nodes) {
		t.Errorf("foretold were boots of %q, want %q", got, nodes)
	}
	if claims := l.Object(t).Annotations["nodegroup.workload.openshift.io/claim"]; claims != "" {
		t.Errorf("the provider has left the claim %s", claims)
	}
}

// arguments are those of the running kernel.
func (l *lab) arguments(t *testing.T) []string {
	t.Helper()
	return strings.Fields(l.read(t, "/proc/cmdline"))
}

// read returns a file of the VM.
func (l *lab) read(t *testing.T, path string) string {
	t.Helper()
	return l.Run(t, "cat '"+path+"'")
}

// await waits until a file of the VM, such as one of the kernel's values, has a content.
func (l *lab) await(t *testing.T, path, want string) {
	t.Helper()
	began := time.Now()
	l.WaitFor(t, l.Limit, path+" is "+want, func() error {
		got, err := l.vm.Run(t.Context(), "cat '"+path+"'")
		if err == nil && got != want {
			err = fmt.Errorf("it is %s", got)
		}
		return err
	})
	t.Logf("%s is %s, seen after another %s", path, want, time.Since(began).Round(100*time.Millisecond))
}
