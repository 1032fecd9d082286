// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	v2 "workload.openshift.io/operators/api/performance/v2"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/performance"
	"workload.openshift.io/operators/tuning"
	"workload.openshift.io/operators/tuning/tunedtest"
)

func TestMain(m *testing.M) {
	testenv.Main(m, tunedtest.Programs(testenv.Programs{"tuned": tuned, "tuned-at-boot": tunedAtBoot, "keep-image": keepImage}), tunedv1.AddToScheme)
}

// tuned is the daemon of the node $2, with the kubeconfig $1, in the boot $3. It keeps what the next boot needs in $4, if the unit $5 is
// there. $6 is its probation.
func tuned() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		panic(err)
	}
	c, err := NewClient(config)
	if err != nil {
		panic(err)
	}
	probation, err := time.ParseDuration(os.Args[6])
	if err != nil {
		panic(err)
	}
	d := &Daemon{Node: os.Args[2], Client: c, Python: tunedtest.Python, EtcDir: "/etc/tuned", RunDir: "/run/tuned", BootID: os.Args[3], Kept: os.Args[4], Unit: os.Args[5], Image: "test", Probation: probation}
	if err := d.Run(logr.NewContext(ctx, klog.Background())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// node is a node with TuneD.
type node struct {
	*testing.T
	*testenv.ControlPlane
	*tunedtest.Kernel
	name   string
	boots  int
	daemon *testenv.Process
	// kept and unit are what the daemon keeps for the next boot, and for which unit; empty is nothing.
	kept, unit string
	// probation is the daemon's; zero is the default.
	probation time.Duration
}

var nodes atomic.Int32

func newNode(t *testing.T) *node { return newNodeOf(t, tunedtest.New(t)) }

// newNodeOf returns a node with this kernel; nil if no TuneD is to run.
func newNodeOf(t *testing.T, kernel *tunedtest.Kernel) *node {
	n := &node{T: t, Kernel: kernel, ControlPlane: testenv.Start(t), name: fmt.Sprintf("node-%d", nodes.Add(1))}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tunedv1.Namespace}}
	if err := n.Client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return n
}

func (n *node) start() {
	n.Helper()
	n.daemon = n.run(n.Kubeconfig)
}

func (n *node) run(kubeconfig string) *testenv.Process {
	n.Helper()
	return n.Kernel.Run(n.T, "tuned", kubeconfig, n.name, fmt.Sprint("boot ", n.boots), n.kept, n.unit, n.probation.String())
}

// restart replaces the daemon, as an upgrade does.
func (n *node) restart() {
	n.Helper()
	pid := n.PID()
	n.daemon.Kill()
	n.start()
	if pid != "" {
		n.another(pid)
	}
}

// another waits for another TuneD than that process, and until it has applied its profile: values are the original ones for a
// moment while it starts.
func (n *node) another(pid string) {
	n.Helper()
	testenv.Eventually(n.T, 30*time.Second, func() error {
		log := n.daemon.Log()
		if now := n.PID(); now == "" || now == pid || !strings.Contains(log[max(strings.LastIndex(log, "Started TuneD"), 0):], "static tuning from profile") {
			return errors.New("no other TuneD")
		}
		return nil
	})
}

// boot ends what runs on the node, gives the kernel its own values, and starts the daemon in another boot.
func (n *node) boot() {
	n.Helper()
	pid := n.PID()
	n.daemon.Kill()
	if pid != "" {
		n.gone(pid)
	}
	n.Kernel.Boot(n.T)
	n.boots++
	n.start()
}

// spec is one that chooses the profile p with this data.
func spec(data string) tunedv1.ProfileSpec {
	return tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: "p"}, Profile: []tunedv1.TunedProfile{{Name: "p", Data: data}}}
}

func sets(value string) string {
	return "[main]\nsummary=test\n[sysctl]\n" + tunedtest.Sysctl + "=" + value + "\n"
}

// wants gives the node a Profile.
func (n *node) wants(spec tunedv1.ProfileSpec) {
	n.Helper()
	n.wantsDeferred("", spec)
}

// wantsDeferred gives the node a Profile whose Tuned says when it is to be applied.
func (n *node) wantsDeferred(mode string, spec tunedv1.ProfileSpec) {
	n.Helper()
	annotations := map[string]string{tunedv1.DeferredAnnotation: mode}
	profile := &tunedv1.Profile{ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: n.name, Annotations: annotations}, Spec: spec}
	err := n.Client.Create(n.Context(), profile)
	if apierrors.IsAlreadyExists(err) {
		testenv.Eventually(n.T, 5*time.Second, func() error {
			if err := n.Client.Get(n.Context(), client.ObjectKeyFromObject(profile), profile); err != nil {
				return err
			}
			profile.Spec, profile.Annotations = spec, annotations
			return n.Client.Update(n.Context(), profile)
		})
		return
	}
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = n.Client.Delete(context.WithoutCancel(n.Context()), profile) })
}

func (n *node) wantsNothing() {
	n.Helper()
	if err := n.Client.Delete(n.Context(), &tunedv1.Profile{ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: n.name}}); err != nil {
		n.Fatal(err)
	}
}

// says waits for conditions of the present generation, as Type=Status/Reason, and returns the messages by type.
func (n *node) says(within time.Duration, want ...string) map[string]string {
	n.Helper()
	begin, messages := time.Now(), map[string]string{}
	testenv.Eventually(n.T, within, func() error {
		profile := &tunedv1.Profile{}
		if err := n.Client.Get(n.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: n.name}, profile); err != nil {
			return err
		}
		var got []string
		for _, condition := range profile.Status.Conditions {
			got = append(got, fmt.Sprintf("%s=%s/%s", condition.Type, condition.Status, condition.Reason))
			messages[condition.Type] = condition.Message
		}
		slices.Sort(got)
		if profile.Status.ObservedGeneration != profile.Generation || !slices.Equal(got, want) {
			return fmt.Errorf("generation %d of %d: %v, want %v; %v", profile.Status.ObservedGeneration, profile.Generation, got, want, messages)
		}
		return nil
	})
	n.Logf("%v after %s: %v", want, time.Since(begin).Round(10*time.Millisecond), messages)
	return messages
}

func (n *node) asExpected(within time.Duration) {
	n.Helper()
	n.says(within, "Applied=True/AsExpected", "Degraded=False/AsExpected")
}

// daemonSet makes the DaemonSet, which nobody runs pods of here.
func (n *node) daemonSet() *appsv1.DaemonSet {
	n.Helper()
	labels := map[string]string{"app": DaemonSet}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: DaemonSet},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "tuned", Image: "tuned"}}}},
		},
	}
	if err := n.Client.Create(n.Context(), set); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = n.Client.Delete(context.WithoutCancel(n.Context()), set) })
	return set
}

func (n *node) kill(pid string, s syscall.Signal) {
	n.Helper()
	var number int
	if _, err := fmt.Sscan(pid, &number); err != nil || number < 2 {
		n.Fatalf("%q is no process: %v", pid, err)
	}
	if err := syscall.Kill(number, s); err != nil {
		n.Fatal(err)
	}
}

// gone waits until a process has ended.
func (n *node) gone(pid string) {
	n.Helper()
	testenv.Eventually(n.T, 10*time.Second, func() error {
		if _, err := os.Stat("/proc/" + pid + "/exe"); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("process %s: %v", pid, err)
		}
		return nil
	})
}

func TestAProfileIsAppliedChangedAndUndone(t *testing.T) {
	n := newNode(t)
	n.start()
	n.wants(spec(sets("32768")))
	n.Eventually(t, "32768", 10*time.Second)
	n.asExpected(30 * time.Second)
	pid := n.PID()

	n.wants(spec(sets("40000")))
	n.Eventually(t, "40000", 10*time.Second)
	n.asExpected(30 * time.Second)
	if got := n.PID(); got != pid {
		t.Errorf("TuneD is process %s, and was %s", got, pid)
	}

	n.wantsNothing()
	n.Eventually(t, tunedtest.Original, 10*time.Second)
	n.gone(pid)
	testenv.Eventually(t, 5*time.Second, func() error {
		if _, err := os.Stat(filepath.Join(n.Dir, "etc", "p")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the profile's directory: %v", err)
		}
		return nil
	})

	n.wants(spec(sets("32768")))
	n.Eventually(t, "32768", 10*time.Second)
	n.asExpected(30 * time.Second)
}

func TestAnErrorIsToldInTunedsWordsAndHeals(t *testing.T) {
	n := newNode(t)
	n.start()
	for name, test := range map[string]struct {
		spec  tunedv1.ProfileSpec
		want  []string
		text  string
		value string
	}{
		"a sysctl that the kernel does not have": {
			spec: spec(sets("32768") + "kernel.no_such_thing=1\n"), value: "32768",
			want: []string{"Applied=True/AsExpected", "Degraded=True/TunedError"},
			text: "tuned.plugins.plugin_sysctl: Failed to read sysctl parameter 'kernel.no_such_thing', the parameter does not exist",
		},
		"a text that is no profile": {
			spec: spec("sysctl\n"), value: tunedtest.Original,
			want: []string{"Applied=False/Failed", "Degraded=True/TunedError"},
			text: "Cannot parse '/etc/tuned/p/tuned.conf'.",
		},
		"a profile that is not there": {
			spec: tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: "missing"}}, value: tunedtest.Original,
			want: []string{"Applied=False/Failed", "Degraded=True/TunedError"},
			text: "Requested profile 'missing' doesn't exist.",
		},
		"an included profile that is not there": {
			spec: spec("[main]\ninclude=missing\n[sysctl]\n" + tunedtest.Sysctl + "=32768\n"), value: tunedtest.Original,
			want: []string{"Applied=False/Failed", "Degraded=True/TunedError"},
			text: "Cannot find profile 'missing'",
		},
		"a plugin that needs the host's service manager": {
			spec: spec(sets("32768") + "[service]\nservice.cron=stop\n"), value: "32768",
			want: []string{"Applied=True/AsExpected", "Degraded=True/UnsupportedPlugin"},
			text: "cannot do anything in the operand: service.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			outer := n.T
			n.T = t
			defer func() { n.T = outer }()
			n.wants(test.spec)
			messages := n.says(30*time.Second, test.want...)
			if got := messages["Degraded"]; !strings.Contains(got, test.text) {
				t.Errorf("the message is %q, want %q", got, test.text)
			}
			n.Eventually(t, test.value, time.Second)
			n.wants(spec(sets("40000")))
			n.Eventually(t, "40000", 10*time.Second)
			n.asExpected(30 * time.Second)
		})
	}
}

func TestABrokenProfileAtTheStartIsToldAndHeals(t *testing.T) {
	n := newNode(t)
	n.wants(spec("sysctl\n"))
	n.start()
	n.says(30*time.Second, "Applied=False/Failed", "Degraded=True/TunedError")
	n.wants(spec(sets("32768")))
	n.Eventually(t, "32768", 10*time.Second)
	n.asExpected(30 * time.Second)
}

func TestWhatIsPutBackAtOnceNeverReachesTheKernel(t *testing.T) {
	n := newNode(t)
	n.start()
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	values := n.Watch(t)
	for range 3 {
		n.wants(spec(sets("1000")))
		time.Sleep(time.Second)
		n.wants(spec(sets("32768")))
		time.Sleep(time.Second)
		n.wantsNothing()
		time.Sleep(500 * time.Millisecond)
		n.wants(spec(sets("32768")))
	}
	n.asExpected(30 * time.Second)
	time.Sleep(3 * time.Second)
	if got := values(); !slices.Equal(got, []string{"32768"}) {
		t.Errorf("the values were %q", got)
	}
}

func TestATunedThatWasKilledLosesNoOriginalValue(t *testing.T) {
	for name, then := range map[string]func(*node){
		"and is started again": func(n *node) {
			n.asExpected(30 * time.Second)
			n.Eventually(n.T, "32768", time.Second)
			n.wantsNothing()
		},
		"and the profile is removed": func(n *node) { n.wantsNothing() },
		"and the profile becomes one that sets nothing": func(n *node) {
			n.wants(spec("[main]\nsummary=nothing\n"))
		},
		"and the DaemonSet is removed": func(n *node) {
			if err := n.daemon.Terminate(n.T, 30*time.Second); err != nil {
				n.Error(err)
			}
		},
		"and this program, too": func(n *node) {
			n.daemon.Kill()
			n.wantsNothing()
			n.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.start()
			n.wants(spec(sets("32768")))
			n.asExpected(30 * time.Second)
			pid := n.PID()
			n.kill(pid, syscall.SIGKILL)
			n.gone(pid)
			if got := n.Value(t); got != "32768" {
				t.Errorf("%s is %s after TuneD was killed", tunedtest.Sysctl, got)
			}
			then(n)
			n.Eventually(t, tunedtest.Original, 20*time.Second)
		})
	}
}

func TestAKilledTunedLosesNothingOfOtherPlugins(t *testing.T) {
	n := newNode(t)
	n.start()
	process := exec.Command("sleep", "54321")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = process.Process.Kill(), process.Wait() })
	// A file of the test's stands for one of sysfs in the mount namespace; policy is field 41 of proc_pid_stat(5).
	state := func() string {
		data, err := os.ReadFile(filepath.Join(n.Dir, "sysfs"))
		if err != nil {
			t.Fatal(err)
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data)) + " policy " + strings.Fields(string(stat))[40] + " " + n.Value(t)
	}
	becomes := func(want string) {
		t.Helper()
		testenv.Eventually(t, 20*time.Second, func() error {
			if got := state(); got != want {
				return fmt.Errorf("the node has %s, want %s", got, want)
			}
			return nil
		})
	}
	before, after := "Y policy 0 "+tunedtest.Original, "N policy 3 32768"
	becomes(before)
	n.wants(spec(sets("32768") + "[sysfs]\n/sys/module/printk/parameters/time=N\n[scheduler]\nruntime=0\ngroup.x=0:b:0:*:^sleep 54321$\n"))
	becomes(after)
	n.asExpected(30 * time.Second)
	for range 2 {
		pid := n.PID()
		n.kill(pid, syscall.SIGKILL)
		n.gone(pid)
		becomes(after)
		testenv.Eventually(t, 15*time.Second, func() error {
			if now := n.PID(); now == "" || now == pid {
				return errors.New("no other TuneD")
			}
			return nil
		})
	}
	becomes(after)
	n.wantsNothing()
	becomes(before)
}

func TestATunedThatIsKilledAgainAndAgainIsStartedLessAndLessOften(t *testing.T) {
	n := newNode(t)
	n.start()
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	for range 3 {
		pid := n.PID()
		n.kill(pid, syscall.SIGKILL)
		n.gone(pid)
		testenv.Eventually(t, 15*time.Second, func() error {
			if now := n.PID(); now == "" || now == pid {
				return errors.New("no other TuneD")
			}
			return nil
		})
	}
	n.asExpected(30 * time.Second)
	if log := n.daemon.Log(); !strings.Contains(log, `again="4s"`) {
		t.Error("the third pause is not four seconds")
	}
	n.wantsNothing()
	n.Eventually(t, tunedtest.Original, 20*time.Second)
}

func TestTheNextProgramTakesOver(t *testing.T) {
	for name, end := range map[string]func(*node){
		"after one that ended": func(n *node) {
			if err := n.daemon.Terminate(n.T, 30*time.Second); err != nil {
				n.Error(err)
			}
		},
		"after one that was killed": func(n *node) { n.daemon.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.daemonSet()
			n.start()
			n.wants(spec(sets("32768")))
			n.asExpected(30 * time.Second)
			pid := n.PID()
			end(n)
			n.gone(pid)
			if got := n.Value(t); got != "32768" {
				t.Errorf("%s is %s after this program has ended", tunedtest.Sysctl, got)
			}
			n.wants(spec("[main]\nsummary=other\n[other]\ntype=sysctl\n" + tunedtest.Sysctl + "=40000\n"))
			n.start()
			n.Eventually(t, "40000", 15*time.Second)
			n.asExpected(30 * time.Second)
			n.wantsNothing()
			n.Eventually(t, tunedtest.Original, 10*time.Second)
		})
	}
}

func TestWhatTunedChangedIsUndoneWithTheDaemonSet(t *testing.T) {
	n := newNode(t)
	set := n.daemonSet()
	n.start()
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	if err := n.Client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if err := n.daemon.Terminate(t, 30*time.Second); err != nil {
		t.Error(err)
	}
	if got := n.Value(t); got != tunedtest.Original {
		t.Errorf("%s is %s", tunedtest.Sysctl, got)
	}
	if left, _ := filepath.Glob(filepath.Join(n.Dir, "[er]*", "*")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// Something else may keep a DaemonSet that was deleted until its pods are gone.
func TestWhatTunedChangedIsUndoneWhileTheDaemonSetGoes(t *testing.T) {
	n := newNode(t)
	set := n.daemonSet()
	before := set.DeepCopy()
	set.Finalizers = []string{metav1.FinalizerDeleteDependents}
	if err := n.Client.Patch(t.Context(), set, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = n.Client.Patch(context.WithoutCancel(t.Context()), set, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	})
	n.start()
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	if err := n.Client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if err := n.daemon.Terminate(t, 30*time.Second); err != nil {
		t.Error(err)
	}
	if got := n.Value(t); got != tunedtest.Original {
		t.Errorf("%s is %s", tunedtest.Sysctl, got)
	}
}

func TestWithoutAnAPIServerTheNodeKeepsItsTuning(t *testing.T) {
	n := newNode(t)
	n.daemonSet()
	n.start()
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	pid := n.PID()
	n.daemon.Kill()
	n.gone(pid)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	data, err := os.ReadFile(n.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kubeconfig, []byte(strings.ReplaceAll(string(data), n.Config.Host, "https://127.0.0.1:1")), 0o600); err != nil {
		t.Fatal(err)
	}
	away := n.run(kubeconfig)
	testenv.Eventually(t, 10*time.Second, func() error {
		if n.PID() == "" || n.PID() == pid {
			return errors.New("no other TuneD")
		}
		return nil
	})
	n.Eventually(t, "32768", 5*time.Second)
	if err := away.Terminate(t, 30*time.Second); err != nil {
		t.Error(err)
	}
	if got := n.Value(t); got != "32768" {
		t.Errorf("%s is %s: nobody said that the DaemonSet is gone", tunedtest.Sysctl, got)
	}
}

// deferred waits until the Profile is reported as deferred, and holds that the sysctl stays as it is.
func (n *node) deferred(value string) {
	n.Helper()
	messages := n.says(30*time.Second, "Applied=False/Deferred", "Degraded=False/TunedDeferredUpdate")
	if got := messages["Applied"]; !strings.Contains(got, "waits for the next boot") {
		n.Errorf("the message is %q", got)
	}
	testenv.Always(n.T, 3*time.Second, func() error {
		if got := n.Value(n.T); got != value {
			return fmt.Errorf("%s is %s, want %s", tunedtest.Sysctl, got, value)
		}
		return nil
	})
}

func TestADeferredProfileWaitsForTheNextBoot(t *testing.T) {
	for name, emptied := range map[string]bool{"whose run directory is empty": true, "that the run directory outlives": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			boot := func() {
				t.Helper()
				n.daemon.Kill()
				if emptied {
					for _, directory := range []string{"etc", "run"} {
						entries, _ := filepath.Glob(filepath.Join(n.Dir, directory, "*"))
						for _, entry := range entries {
							if err := os.RemoveAll(entry); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				n.boot()
			}
			n.start()
			n.wantsDeferred(tunedv1.DeferAlways, spec(sets("32768")))
			n.deferred(tunedtest.Original)
			n.restart()
			n.deferred(tunedtest.Original)
			boot()
			n.Eventually(t, "32768", 15*time.Second)
			n.asExpected(30 * time.Second)

			values := n.Watch(t)
			n.wantsDeferred(tunedv1.DeferAlways, spec(sets("40000")))
			n.deferred("32768")
			if got := values(); !slices.Equal(got, []string{"32768"}) {
				t.Errorf("the values were %q", got)
			}
			n.restart()
			n.deferred("32768")
			boot()
			n.Eventually(t, "40000", 15*time.Second)
			n.asExpected(30 * time.Second)

			// Without the annotation it does not wait any more, and neither does a removal.
			n.wantsDeferred(tunedv1.DeferAlways, spec(sets("50000")))
			n.deferred("40000")
			n.wantsDeferred(tunedv1.DeferNever, spec(sets("50000")))
			n.Eventually(t, "50000", 10*time.Second)
			n.asExpected(30 * time.Second)
			n.wantsNothing()
			n.Eventually(t, tunedtest.Original, 10*time.Second)
		})
	}
}

// What hinders a deferred profile at its boot does not make it wait for another one.
func TestADeferredProfileIsTriedAgainInItsBoot(t *testing.T) {
	directory := t.TempDir()
	d := &Daemon{EtcDir: filepath.Join(directory, "etc"), RunDir: filepath.Join(directory, "run"), Python: "/bin/true", BootID: "b"}
	d.defaults()
	profile := &tunedv1.Profile{
		ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: "n", Annotations: map[string]string{tunedv1.DeferredAnnotation: tunedv1.DeferAlways}},
		Spec:       spec(sets("1")), Status: tunedv1.ProfileStatus{Conditions: []metav1.Condition{{Type: tunedv1.ConditionApplied}}},
	}
	if err := os.WriteFile(d.EtcDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.booted = true
	now := time.Now()
	d.see(profile, now)
	d.step(t.Context(), now)
	if err := os.Remove(d.EtcDir); err != nil {
		t.Fatal(err)
	}
	now, d.reportAt = now.Add(time.Minute), time.Time{} // nobody is there to be told
	d.step(t.Context(), now)
	if d.running != nil {
		d.running.kill()
	}
	if d.state.waits || d.held.Profile == "" {
		t.Errorf("it waits: %t, and has %q", d.state.waits, d.held.Profile)
	}
}

func TestADeferralThatIsPutBackAtOnceLetsNothingThrough(t *testing.T) {
	n := newNode(t)
	n.start()
	n.wantsDeferred(tunedv1.DeferAlways, spec(sets("32768")))
	n.deferred(tunedtest.Original)
	values := n.Watch(t)
	for _, mode := range []string{"", tunedv1.DeferNever, tunedv1.DeferUpdate} {
		n.wantsDeferred(mode, spec(sets("32768")))
		time.Sleep(time.Second)
		n.wantsDeferred(tunedv1.DeferAlways, spec(sets("32768")))
	}
	n.deferred(tunedtest.Original)
	if got := values(); !slices.Equal(got, []string{tunedtest.Original}) {
		t.Errorf("the values were %q", got)
	}
}

func TestADeferredUpdateWaitsAndAnotherProfileDoesNot(t *testing.T) {
	n := newNode(t)
	n.start()
	n.wantsDeferred(tunedv1.DeferUpdate, spec(sets("32768")))
	n.Eventually(t, "32768", 10*time.Second)
	n.asExpected(30 * time.Second)
	n.wantsDeferred(tunedv1.DeferUpdate, spec(sets("40000")))
	n.deferred("32768")
	// A TuneD that is killed comes back with what it had.
	pid := n.PID()
	n.kill(pid, syscall.SIGKILL)
	n.gone(pid)
	n.another(pid)
	n.deferred("32768")
	other := spec(sets("40000"))
	other.Config.TunedProfile = "q"
	other.Profile = append(other.Profile, tunedv1.TunedProfile{Name: "q", Data: sets("50000")})
	n.wantsDeferred(tunedv1.DeferUpdate, other)
	n.Eventually(t, "50000", 10*time.Second)
	n.asExpected(30 * time.Second)
}

func TestWhatTheHostOverridesIsNamed(t *testing.T) {
	n := newNode(t)
	if err := os.WriteFile(filepath.Join(n.Dir, "sysctl.d", "99-host.conf"), []byte(tunedtest.Sysctl+" = 20000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.wants(spec(sets("32768")))
	if got := n.says(30*time.Second, "Applied=True/AsExpected", "Degraded=True/TunedSysctlOverride")["Degraded"]; !strings.Contains(got, tunedtest.Sysctl) {
		t.Errorf("the message is %q", got)
	}
	n.Eventually(t, "20000", time.Second)
	wins := spec(sets("32768"))
	wins.Config.TunedConfig.ReapplySysctl = new(bool)
	n.wants(wins)
	n.Eventually(t, "32768", 10*time.Second)
	n.asExpected(30 * time.Second)
}

func TestKernelArgumentsAreReported(t *testing.T) {
	n := newNode(t)
	n.start()
	// Without skip_grub_config TuneD would look for a boot loader, and this host may have one.
	n.wants(spec("[variables]\ncpus=1\n[bootloader]\nskip_grub_config=true\ncmdline=isolcpus=${cpus} nohz_full=${f:cpulist_pack:1}\n"))
	n.asExpected(30 * time.Second) // a warning about the boot loader is none
	arguments := func(want string) {
		t.Helper()
		testenv.Eventually(t, 10*time.Second, func() error {
			profile := &tunedv1.Profile{}
			if err := n.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: n.name}, profile); err != nil {
				return err
			}
			if got := profile.Status.Bootcmdline; got != want {
				return fmt.Errorf("the arguments are %q, want %q", got, want)
			}
			return nil
		})
	}
	arguments("isolcpus=1 nohz_full=1")
	// As TuneD's own profile cpu-partitioning computes them.
	n.wants(spec("[variables]\nisolated_cores=2-3\nisolated_cores_expanded=${f:cpulist_unpack:${isolated_cores}}\nisolated_cpumask=${f:cpulist2hex:${isolated_cores_expanded}}\n" +
		"[bootloader]\nskip_grub_config=true\ncmdline=rcu_nocbs=${isolated_cores_expanded} mask=${isolated_cpumask}\n"))
	n.asExpected(30 * time.Second)
	arguments("rcu_nocbs=2,3 mask=0000000c")
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	arguments("")
}

func TestTheLastKernelArgumentKeepsItsQuote(t *testing.T) {
	for value, want := range map[string]string{"": "", "a=1 b": "a=1 b", ` a=1 dyndbg="file x +p"`: `a=1 dyndbg="file x +p"`, "a=1\nb=2": "a=1 b=2"} {
		f := files{etc: t.TempDir()}
		// As TuneD writes it (add_modify_option_in_file in tuned/utils/commands.py).
		text := "TUNED_BOOT_CMDLINE=\"" + value + "\"\nTUNED_BOOT_INITRD_ADD=\"\"\n"
		if err := os.WriteFile(f.cmdline(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := f.kernelArguments(); got != want {
			t.Errorf("of %s the arguments are %q, want %q", text, got, want)
		}
	}
}

// The operator says on the Profile what it refuses of the operand's report, and only the operand writes the status.
func TestRefusedKernelArgumentsMakeAProfileDegraded(t *testing.T) {
	applied := &observed{phase: applied, record: Record{Profile: "p"}, overrides: []string{"of less weight"}}
	profile := &tunedv1.Profile{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tuning.RefusedAnnotation: "init=/bin/sh: no section has init"}}}
	degraded := meta.FindStatusCondition(applied.status(profile, time.Now()).Conditions, tunedv1.ConditionDegraded)
	if degraded == nil || degraded.Status != metav1.ConditionTrue || degraded.Reason != ReasonArgumentsRefused || !strings.Contains(degraded.Message, "init=/bin/sh: no section has init") {
		t.Errorf("the condition is %+v", degraded)
	}
}

// What is known of a profile's arguments before a node has it is what TuneD computes.
func TestTunedComputesWhatIsForetold(t *testing.T) {
	n := newNode(t)
	n.start()
	const head = "[bootloader]\nskip_grub_config=true\n"
	rendered, errs := performance.Render(v2.PerformanceProfile{Metadata: v2.Metadata{Name: "edge"}, Spec: v2.Spec{CPU: v2.CPU{Reserved: "0", Isolated: "1-3"}, AdditionalKernelArgs: []string{"audit=0"}}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	// Its sysctls are the host's.
	text := strings.NewReplacer("include=openshift-node\n", "", "[sysctl]\nvm.stat_interval=10\nkernel.timer_migration=0\n", "").Replace(rendered.TunedText)
	for _, test := range []struct {
		what  string
		spec  tunedv1.ProfileSpec
		names bool // a PerformanceProfile's, whose arguments are known
	}{
		{what: "two options in their order", spec: spec(head + "cmdline_b=+b=1\ncmdline_a=a=1 c\n")},
		{what: "one that is taken away", spec: spec(head + "cmdline_a=+a=1 b=1\ncmdline_b=-a=1\n")},
		{what: "quotes around all of them", spec: spec(head + "cmdline=\"a=1 b=1\"\n")},
		{what: "a section that is switched on by a word that is not TuneD's", spec: spec(head + "enabled=yes\ncmdline=+a=1\n")},
		{what: "a value that goes on in the next line", spec: spec(head + "cmdline_a=+a=1 # why\n  b=1\ncmdline_b=+c=1\n")},
		{what: "an included profile, and an option that is overridden", spec: tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: "p"}, Profile: []tunedv1.TunedProfile{
			{Name: "p", Data: "[main]\ninclude=q\n[variables]\ncpus=2-3\n[bootloader]\ncmdline=+p=1\n"}, {Name: "q", Data: "[variables]\ncpus=1\n" + head + "cmdline=+q=1\ncmdline_z=+nohz_full=${cpus}\n"},
		}}},
		{what: "a PerformanceProfile", spec: tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: rendered.Tuned}, Profile: []tunedv1.TunedProfile{{Name: rendered.Tuned, Data: text}}}, names: true},
	} {
		n.wants(test.spec)
		requested := tuning.RequestedBy(test.spec)
		want, complete := requested.Literal()
		if !complete || test.names && !slices.Equal(want, rendered.Arguments) {
			t.Errorf("%s: foretold are %q, complete %t", test.what, want, complete)
		}
		testenv.Eventually(t, 40*time.Second, func() error {
			profile := &tunedv1.Profile{}
			if err := n.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: n.name}, profile); err != nil {
				return err
			}
			if got := profile.Status.Bootcmdline; got != strings.Join(want, " ") || profile.Status.ObservedGeneration != profile.Generation {
				return fmt.Errorf("%s: the arguments are %q, and foretold are %q", test.what, got, want)
			}
			return nil
		})
		if accepted, refused := requested.Accept(strings.Join(want, " ")); len(refused) > 0 || !slices.Equal(accepted, want) {
			t.Errorf("%s: refused are %v", test.what, refused)
		}
	}
}

func TestTunedLogsInDetailIfTheProfileSaysSo(t *testing.T) {
	n := newNode(t)
	n.start()
	n.wants(spec(sets("32768")))
	n.asExpected(30 * time.Second)
	if memory := n.daemon.Memory(t); memory > 30<<20 {
		t.Errorf("it takes %d MiB", memory>>20)
	} else {
		t.Logf("it takes %d MiB", memory>>20)
	}
	debug := spec(sets("32768"))
	debug.Config.Debug = true
	n.wants(debug)
	testenv.Eventually(t, 15*time.Second, func() error {
		if !strings.Contains(n.daemon.Log(), " DEBUG ") {
			return errors.New("there is no line of the level DEBUG")
		}
		return nil
	})
	n.asExpected(30 * time.Second)
	n.Eventually(t, "32768", time.Second)
	n.wantsNothing()
	n.Eventually(t, tunedtest.Original, 10*time.Second)
}

func TestUnsupportedPlugins(t *testing.T) {
	for name, test := range map[string]struct {
		profiles map[string]string
		want     string
	}{
		"none":                                 {map[string]string{"p": "[sysctl]\na=1\n"}, "[]"},
		"of the profile, and one it includes":  {map[string]string{"p": "[main]\ninclude=q\n[service]\nservice.cron=stop\n", "q": "[units]\ntype=systemd\ncpu_affinity=0\n"}, "[service systemd]"},
		"one that is switched off":             {map[string]string{"p": "[systemd]\nenabled=0\ncpu_affinity=0\n"}, "[]"},
		"of a profile that is not included":    {map[string]string{"p": "[sysctl]\na=1\n", "q": "[service]\nservice.cron=stop\n"}, "[]"},
		"profiles that include each other":     {map[string]string{"p": "[main]\ninclude=q\n", "q": "[main]\ninclude=-p\n[service]\nservice.cron=stop\n"}, "[service]"},
		"an included name that is a directory": {map[string]string{"p": "[main]\ninclude=../../etc\n"}, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: "p"}}
			for name, data := range test.profiles {
				spec.Profile = append(spec.Profile, tunedv1.TunedProfile{Name: name, Data: data})
			}
			if got := fmt.Sprint(unsupportedPlugins(spec)); got != test.want {
				t.Errorf("they are %s, want %s", got, test.want)
			}
		})
	}
}

func TestConditionsAreThoseOfProfiles(t *testing.T) {
	var o observed
	status := o.status(&tunedv1.Profile{}, time.Now())
	for _, kind := range []string{tunedv1.ConditionApplied, tunedv1.ConditionDegraded} {
		if meta.FindStatusCondition(status.Conditions, kind) == nil {
			t.Errorf("there is no condition %s", kind)
		}
	}
}
