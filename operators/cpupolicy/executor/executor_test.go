// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

const (
	simDropIn     = "/etc/kubelet.d/99.conf"
	simCheckpoint = "/var/lib/kubelet/cpu_manager_state"
)

// end is how the world ends a process of the agent.
type end int

const (
	never end = iota
	// kill ends the process, cut the whole host, and hangUp the connection to what runs the kubelet: the
	// answer to that call is lost, if it was about the kubelet.
	kill
	cut
	hangUp
)

// killed is the panic by which the agent's process ends.
type killed struct{}

// world is a host with a disk and a kubelet. It ends the agent's process at a given call, before
// the call has an effect, after that, or in the middle.
type world struct {
	t    *testing.T
	rand *rand.Rand
	// files are what processes see. disk survives a power cut, as does an arbitrary part of the
	// changes of names that are not synced.
	files, disk map[string]*File
	pending     []map[string]*File

	calls, endAt int
	how          end
	// lost means that the process has lost its connection.
	lost bool

	process, started int
	startedAt        time.Time
	running          operation.Policy
	// broken has the policies under which the kubelet ends at once, and sick those under which
	// it never becomes healthy. deaf means that it does not stop by itself.
	broken, sick operation.Policy
	deaf         bool
	// full has the path of a file that cannot be written, until a time unless that is zero. fills means
	// that this begins once the kubelet is down.
	full      string
	fills     bool
	fullUntil time.Time
	// enabled means that the host unit is there: then the kubelet of a host that boots waits
	// for it.
	enabled, booting bool
	// due says what the CPU manager has yet to do, so long after the kubelet was started; nil means nothing.
	due func(since time.Duration) (string, error)
	// widened has the checkpoints by which containers got their CPUs back.
	widened []string
	// unfit says whether a pod does not go with the Node, so long after the kubelet was started for the first
	// time, zero before that; nil means that nobody asks the API. restarted is when that was.
	unfit     func(since time.Duration) (bool, error)
	restarted time.Time
	// wrote is the checkpoint that the kubelet wrote last under the policy from, since the host
	// booted.
	wrote string
	from  operation.Policy
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 0)), files: map[string]*File{}, disk: map[string]*File{}, enabled: true}
	return w
}

// has puts files on the disk.
func (w *world) has(path, content string) {
	w.files[path] = &File{[]byte(content), 0o600}
	w.disk = maps.Clone(w.files)
}

// call is at the begin of all that the agent does. part is what may have happened of it when the
// process ends in the middle, and all what happens otherwise.
func (w *world) call(part, all func()) {
	w.calls++
	if w.how == never || w.calls != w.endAt {
		all()
		return
	}
	if w.how == hangUp {
		w.how, w.lost = never, true
		all()
		return
	}
	switch w.rand.IntN(3) {
	case 0:
		all()
	case 1:
		if part != nil {
			part()
		}
	}
	if w.how == cut {
		w.cutPower()
	}
	w.how = never
	panic(killed{})
}

func (w *world) cutPower() {
	for _, change := range w.pending {
		if w.rand.IntN(2) == 0 {
			apply(w.disk, change)
		}
	}
	w.pending, w.files = nil, maps.Clone(w.disk)
	w.process, w.booting, w.wrote = 0, true, ""
}

func apply(files, change map[string]*File) {
	for path, file := range change {
		if files[path] = file; file == nil {
			delete(files, path)
		}
	}
}

func (w *world) change(change map[string]*File) {
	apply(w.files, change)
	w.pending = append(w.pending, change)
}

func (w *world) read(path string) (file *File, err error) {
	w.call(nil, func() { file = w.files[path] })
	return file, nil
}

func (w *world) create(path string, file File) (err error) {
	w.call(func() {
		w.change(map[string]*File{path: {file.Content[:w.rand.IntN(len(file.Content))], file.Mode}})
	}, func() {
		if w.files[path] != nil {
			err = fmt.Errorf("%s exists", path)
		} else if strings.TrimSuffix(path, ".new") == w.full && (!w.fills || w.process == 0) && (w.fullUntil.IsZero() || time.Now().Before(w.fullUntil)) {
			err = fmt.Errorf("%s: no space left on device", path)
		} else {
			w.change(map[string]*File{path: &file})
		}
	})
	return err
}

func (w *world) try(path string, _ File) (err error) {
	w.call(nil, func() {
		if path == w.full && !w.fills {
			err = fmt.Errorf("%s: no space left on device", path)
		}
	})
	return err
}

func (w *world) mkdir(string) error { return nil }

func (w *world) rename(from, to string) error {
	w.call(nil, func() { w.change(map[string]*File{to: w.files[from], from: nil}) })
	return nil
}

func (w *world) remove(path string) error {
	w.call(nil, func() { w.change(map[string]*File{path: nil}) })
	return nil
}

func (w *world) sync(dir string) error {
	w.call(nil, func() {
		w.pending = slices.DeleteFunc(w.pending, func(change map[string]*File) bool {
			for path := range change {
				if filepath.Dir(path) != dir {
					return false
				}
			}
			apply(w.disk, change)
			return true
		})
	})
	return nil
}

// startKubelet starts the kubelet, as systemd does it, unless it runs. Like upstream's it does not start with
// another policy's checkpoint.
func (w *world) startKubelet() {
	if w.process != 0 {
		return
	}
	w.running = operation.None
	if dropIn := w.files[simDropIn]; dropIn != nil {
		w.running = operation.Policy(dropIn.Content)
		if !slices.Contains(operation.Policies(), w.running) {
			w.t.Errorf("the kubelet starts with the drop-in %q", dropIn.Content)
		}
	}
	if checkpoint := w.files[simCheckpoint]; checkpoint != nil && !bytes.Contains(checkpoint.Content, []byte(w.running)) {
		w.t.Errorf("the kubelet starts with the policy %s and the checkpoint %q", w.running, checkpoint.Content)
	} else if w.wrote != "" && w.running == w.from && string(checkpoint.Content) != w.wrote {
		w.t.Errorf("the kubelet starts with the checkpoint %q, and wrote %q last", checkpoint.Content, w.wrote)
	}
	w.started++
	if w.started == 2 {
		w.restarted = time.Now()
	}
	w.process, w.startedAt = w.started, time.Now()
}

func (w *world) connected() bool { return !w.lost }

// ask calls what runs the kubelet.
func (w *world) ask(do func()) error {
	if !w.lost {
		w.call(nil, do)
	}
	if w.lost {
		return errors.New("connection closed")
	}
	return nil
}

func (w *world) start(context.Context) error { return w.ask(w.startKubelet) }

func (w *world) stop(ctx context.Context) (err error) {
	asked := w.ask(func() {
		if w.deaf && w.process != 0 {
			<-ctx.Done()
			err = ctx.Err()
			return
		}
		sleep(ctx, time.Second)
		w.process = 0
	})
	return cmp.Or(asked, err)
}

func (w *world) kill(context.Context) error {
	return w.ask(func() { w.process, w.deaf = 0, false })
}

func (w *world) pid(context.Context) (pid int, err error) {
	err = w.ask(func() {
		if w.process != 0 && w.running == w.broken {
			w.process = 0
			w.startKubelet()
		}
		pid = w.process
	})
	return pid, err
}

func (w *world) probe(context.Context, string) (err error) {
	w.call(nil, func() {
		switch {
		case w.process == 0 || w.running == w.sick:
			err = errors.New("connection refused")
		case time.Since(w.startedAt) > 700*time.Millisecond:
			checkpoint := checkpointOf(w.running, fmt.Sprintf("kubelet-%d", w.started))
			if w.running == w.from {
				w.wrote = checkpoint
			}
			w.change(map[string]*File{simCheckpoint: {[]byte(checkpoint), 0o600}})
		}
	})
	return err
}

func (w *world) kubelet(context.Context) (*kubelet, error)             { return nil, nil }
func (w *world) plan(context.Context, operation.Policy) (*Plan, error) { return nil, nil }
func (w *world) lastError(context.Context, *Plan, time.Time) string    { return "E1103 kubelet: bad luck" }
func (w *world) close()                                                {}

// planned is the world's driver for a policy.
type planned struct {
	*world
	refused error
}

func (p planned) plan(_ context.Context, policy operation.Policy) (*Plan, error) {
	return &Plan{DropIn: simDropIn, Content: string(policy), Checkpoint: simCheckpoint, Reconciled: 15 * time.Second}, p.refused
}

func (w *world) ready() {
	if w.booting {
		w.booting = false
		w.startKubelet()
	}
}

func checkpointOf(policy operation.Policy, by string) string {
	return fmt.Sprintf(`{"policyName":%q,"defaultCpuSet":"0-3","entries":{%q:{}},"checksum":1}`, policy, by)
}

func (w *world) unsettled(context.Context, *Plan) (what string, err error) {
	w.call(nil, func() {
		if w.process == 0 {
			w.t.Error("the CPU manager is waited for, and its kubelet does not run")
		}
		if w.due != nil {
			what, err = w.due(time.Since(w.startedAt))
		}
	})
	return what, err
}

func (w *world) node(context.Context, *Plan) (labels, mismatches map[string]string, err error) {
	if w.unfit == nil {
		return nil, nil, errors.New("there is no kubeconfig")
	}
	w.call(nil, func() {
		since, unfit := time.Duration(0), false
		if !w.restarted.IsZero() {
			since = time.Since(w.restarted)
		}
		if unfit, err = w.unfit(since); unfit {
			mismatches = map[string]string{"uid": "v/machine requires of its node kubevirt.io/schedulable=true"}
		}
	})
	return nil, mismatches, err
}

// execute runs the agent's process, and reports whether it was killed.
func (w *world) execute(e *Executor) (result *operation.Result, err error, dead bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, dead = r.(killed); !dead {
				panic(r)
			}
		}
	}()
	result, err = e.Execute(klog.NewContext(w.t.Context(), logr.Discard()))
	return result, err, false
}

func (w *world) executor(refused error) *Executor {
	return &Executor{
		driver: func(context.Context, operation.Driver, *Plan) (driver, error) {
			w.lost = false
			return planned{w, refused}, nil
		},
		disk:  w,
		probe: w.probe,
		due:   w.unsettled,
		widen: func(_ context.Context, _ *Plan, checkpoint *File) (string, error) {
			if checkpoint != nil {
				w.widened = append(w.widened, string(checkpoint.Content))
			}
			return "widened", nil
		},
		node:     w.node,
		ready:    w.ready,
		cleanUp:  func(context.Context) error { w.call(nil, func() { w.enabled = false }); return nil },
		interval: 500 * time.Millisecond, stable: time.Second,
	}
}

// scene is a host before a switch, and what the kubelet makes of it.
type scene struct {
	from, to operation.Policy
	// configured means that there is a drop-in, and fresh that there is no checkpoint yet.
	configured, fresh bool
	broken, sick      operation.Policy
	deaf              bool
	full              string
	fills             bool
	refused           error
	unfit             func(since time.Duration) (bool, error)
	due               func(since time.Duration) (string, error)
	want              operation.Outcome
	step              string
}

// reconciles is a CPU manager that moves a container a while after the switch was requested.
func reconciles(since time.Duration) (string, error) {
	if since < time.Minute+9*time.Second {
		return "container c of pod v/p has CPU 0, and not yet 0-3", nil
	}
	return "", nil
}

// comesBack is what KubeVirt does with its label schedulable when the kubelet restarts.
func comesBack(since time.Duration) (bool, error) {
	return since > 2*time.Second && since < time.Minute, nil
}

var scenes = map[string]scene{
	"to static":                {from: operation.None, to: operation.Static, want: operation.Succeeded, step: "report"},
	"to static over a drop-in": {from: operation.None, to: operation.Static, configured: true, want: operation.Succeeded, step: "report"},
	"to none":                  {from: operation.Static, to: operation.None, configured: true, want: operation.Succeeded, step: "report"},
	"to none, with a container that is moved later":    {from: operation.Static, to: operation.None, configured: true, due: reconciles, want: operation.Succeeded, step: "report"},
	"to static without a checkpoint":                   {from: operation.None, to: operation.Static, fresh: true, want: operation.Succeeded, step: "report"},
	"a kubelet that does not stop":                     {from: operation.None, to: operation.Static, deaf: true, want: operation.Succeeded, step: "report"},
	"a kubelet that ends under the new policy":         {from: operation.None, to: operation.Static, broken: operation.Static, want: operation.RolledBack, step: "healthy"},
	"a kubelet that is never healthy":                  {from: operation.Static, to: operation.None, configured: true, sick: operation.None, want: operation.RolledBack, step: "healthy"},
	"a kubelet that ends, and a label that comes back": {from: operation.None, to: operation.Static, broken: operation.Static, unfit: comesBack, want: operation.RolledBack, step: "healthy"},
	"a drop-in that cannot be written":                 {from: operation.None, to: operation.Static, full: simDropIn, want: operation.Failed, step: "validate"},
	"a checkpoint that cannot be written":              {from: operation.None, to: operation.Static, full: simCheckpoint, want: operation.Failed, step: "validate"},
	"a disk that fills":                                {from: operation.None, to: operation.Static, full: simDropIn, fills: true, want: operation.RolledBack, step: "configure"},
	"a disk that fills beside a drop-in":               {from: operation.None, to: operation.Static, configured: true, full: simDropIn, fills: true, want: operation.RolledBack, step: "configure"},
	"a switch that is refused":                         {from: operation.None, to: operation.Static, refused: errors.New("no"), want: operation.Failed, step: "validate"},
	"a journal that cannot be written":                 {from: operation.None, to: operation.Static, full: journalFile, want: operation.Failed, step: "validate"},
}

func (s scene) world(t *testing.T, seed uint64) *world {
	w := newWorld(t, seed)
	w.from = s.from
	if s.configured {
		w.has(simDropIn, string(s.from))
	}
	if !s.fresh {
		w.has(simCheckpoint, checkpointOf(s.from, "before"))
	}
	if err := store(w, Journal{Request: operation.Request{ID: "op", Policy: s.to, Driver: operation.DriverKubelet}, Step: Validate}); err != nil {
		t.Fatal(err)
	}
	w.startKubelet()
	time.Sleep(time.Minute)
	w.broken, w.sick, w.deaf, w.full, w.fills, w.unfit = s.broken, s.sick, s.deaf, s.full, s.fills, s.unfit
	w.due = s.due
	w.calls = 0
	return w
}

// check checks a host after the operation: all of it is old, or all is new, and the kubelet runs.
func (w *world) check(s scene, result *operation.Result) {
	t := w.t
	t.Helper()
	old := map[string]string{}
	if s.configured {
		old[simDropIn] = string(s.from)
	}
	policy := s.from
	want := maps.Clone(old)
	if result.Outcome == operation.Succeeded {
		policy, want = s.to, map[string]string{simDropIn: string(s.to)}
	}
	for path, file := range w.files {
		switch path {
		case journalFile:
		case simCheckpoint:
			if checkpoint := kubeletstate.ParseCheckpoint(file.Content); checkpoint.Policy != string(policy) {
				t.Errorf("the checkpoint is %s, want one of %s", file.Content, policy)
			}
		default:
			if want[path] != string(file.Content) {
				t.Errorf("%s has %q, want %q", path, file.Content, want[path])
			}
			delete(want, path)
		}
	}
	for path := range want {
		t.Errorf("%s is missing", path)
	}
	if w.process == 0 || w.running != policy || w.enabled {
		t.Errorf("the kubelet is process %d with the policy %s, want %s; the host unit is there: %t", w.process, w.running, policy, w.enabled)
	}
	if result.ID != "op" || (result.Policy != policy && !s.fresh) {
		t.Errorf("the result is %+v, want the policy %s", result, policy)
	}
}

func TestASwitchEndsAsTheKubeletDoes(t *testing.T) {
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := s.world(t, 1)
				if s.full == journalFile {
					w.fullUntil = time.Now().Add(time.Minute)
				}
				begin := time.Now()
				result, err, _ := w.execute(w.executor(s.refused))
				if err != nil {
					t.Fatal(err)
				}
				if result.Outcome != s.want || result.Step != s.step {
					t.Errorf("the result is %+v, want %s at %s", result, s.want, s.step)
				}
				if took := time.Since(begin); took > operation.MaxTotal {
					t.Errorf("it took %s", took)
				}
				w.check(s, result)
				if rolledBack := result.Outcome == operation.RolledBack && result.Step == "healthy"; rolledBack != (result.KubeletError != "") {
					t.Errorf("the kubelet's own error is %q", result.KubeletError)
				}
			})
		})
	}
}

func TestASwitchToNoneStopsTheKubeletOnceTheCPUManagerIsDone(t *testing.T) {
	never := func(time.Duration) (string, error) { return "container c of pod v/p has CPU 0, and not yet 0-3", nil }
	for name, test := range map[string]struct {
		scene scene
		// least and most are how long it may wait.
		least, most time.Duration
	}{
		"nothing is due": {scene{from: operation.Static, to: operation.None}, 0, 0},
		"a container is moved after some seconds": {scene{from: operation.Static, to: operation.None, due: reconciles}, 9 * time.Second, 11 * time.Second},
		"a driver's container is not moved":       {scene{from: operation.Static, to: operation.None, due: never}, 15 * time.Second, 17 * time.Second},
		"the runtime does not answer":             {scene{from: operation.Static, to: operation.None, due: func(time.Duration) (string, error) { return "", errors.New("refused") }}, 0, 5 * time.Second},
		"the runtime fails once, and a container is due": {scene{from: operation.Static, to: operation.None, due: func(since time.Duration) (string, error) {
			if since < time.Minute+time.Second {
				return "", errors.New("refused")
			}
			return reconciles(since)
		}}, 9 * time.Second, 11 * time.Second},
		"a switch to static, which the kubelet narrows for": {scene{from: operation.None, to: operation.Static, due: never}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.scene.configured = true
				w := test.scene.world(t, 1)
				e, begin, stopped := w.executor(nil), time.Now(), time.Time{}
				e.cleanUp = func(context.Context) error {
					j, err := load(w)
					stopped = j.Stopped
					return err
				}
				result, err, _ := w.execute(e)
				if err != nil || result.Outcome != operation.Succeeded {
					t.Fatalf("the result is %+v, %v", result, err)
				}
				if waited := stopped.Sub(begin); waited < test.least || waited > test.most {
					t.Errorf("it waited for %s, want %s to %s", waited, test.least, test.most)
				}
			})
		})
	}
}

// A pod that comes while the CPU manager is waited for may get exclusive CPUs.
func TestWhatIsRefusedWhileTheCPUManagerIsWaitedForIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := scene{from: operation.Static, to: operation.None, configured: true, due: reconciles}.world(t, 1)
		e, begin := w.executor(nil), time.Now()
		e.driver = func(context.Context, operation.Driver, *Plan) (driver, error) {
			return refuses{w, begin.Add(5 * time.Second)}, nil
		}
		result, err, _ := w.execute(e)
		if err != nil || !result.Unchanged() || w.started != 1 {
			t.Errorf("the result is %+v, %v, and the kubelet was started %d times", result, err, w.started)
		}
	})
}

// refuses is the world's driver, which refuses a switch from a time on.
type refuses struct {
	*world
	from time.Time
}

func (r refuses) plan(ctx context.Context, policy operation.Policy) (*Plan, error) {
	if time.Now().After(r.from) {
		return nil, errors.New("container c of pod v/p has CPU 1 exclusively")
	}
	return planned{world: r.world}.plan(ctx, policy)
}

// A kubelet that has run under the policy static has confined containers, and the policy none would leave
// them so.
func TestARollBackFromStaticGivesContainersTheirCPUsBack(t *testing.T) {
	for name, test := range map[string]struct {
		scene scene
		want  []string
	}{
		"it ran for a while": {scene{from: operation.None, to: operation.Static, want: operation.RolledBack}, []string{checkpointOf(operation.Static, "kubelet-2")}},
		"it never ran":       {scene{from: operation.None, to: operation.Static, broken: operation.Static, want: operation.RolledBack}, nil},
		"a switch to none":   {scene{from: operation.Static, to: operation.None, configured: true, sick: operation.None, want: operation.RolledBack}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := test.scene.world(t, 1)
				e := w.executor(nil)
				if test.scene.broken == "" && test.scene.sick == "" {
					// It writes its checkpoint, and is not healthy for long enough.
					e.stable = time.Hour
					back := false
					e.probe = func(ctx context.Context, url string) error {
						if w.started > 2 && !back {
							back, e.stable = true, time.Second
						}
						return w.probe(ctx, url)
					}
				}
				result, err, _ := w.execute(e)
				if err != nil {
					t.Fatal(err)
				}
				if result.Outcome != test.scene.want || !slices.Equal(w.widened, test.want) {
					t.Errorf("the result is %+v, and containers were widened by %q, want %q", result, w.widened, test.want)
				}
			})
		})
	}
}

func TestAKubeletThatDoesNotComeBackHasItsErrorInTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The way back begins with a failure that is not the kubelet's.
		w := scene{from: operation.None, to: operation.Static, full: simDropIn, fills: true}.world(t, 1)
		e := w.executor(nil)
		e.probe = func(ctx context.Context, url string) error {
			if w.started > 1 {
				return errors.New("connection refused")
			}
			return w.probe(ctx, url)
		}
		result, err, _ := w.execute(e)
		if err != nil {
			t.Fatal(err)
		}
		if result.Outcome != operation.Failed || result.Step != "configure" || !strings.Contains(result.Message, "no space left") || !strings.Contains(result.Message, "restored, but") || result.KubeletError == "" {
			t.Errorf("the result is %+v", result)
		}
	})
}

// TestWhateverEndsTheAgentTheHostIsWhole ends the agent's process, the host, or the connection between
// them, at every call that has an effect, twice and more, and lets a new process go on as systemd would.
func TestWhateverEndsTheAgentTheHostIsWhole(t *testing.T) {
	for name, s := range scenes {
		if s.full == journalFile {
			continue
		}
		t.Run(name, func(t *testing.T) {
			calls := 0
			synctest.Test(t, func(t *testing.T) {
				w := s.world(t, 1)
				w.execute(w.executor(s.refused))
				calls = w.calls
			})
			for _, how := range []end{kill, cut, hangUp} {
				for at := 1; at <= calls; at++ {
					for seed := range uint64(3) {
						endings := 0
						ok := t.Run("", func(t *testing.T) {
							synctest.Test(t, func(t *testing.T) { endings = endedAt(t, s, how, at, seed) })
						})
						if !ok {
							t.Fatalf("%d endings by %d, the first at call %d, seed %d", endings, how, at, seed)
						}
					}
				}
			}
		})
	}
}

func endedAt(t *testing.T, s scene, how end, at int, seed uint64) (endings int) {
	w := s.world(t, seed)
	w.how, w.endAt = how, at
	begin, booted := time.Now(), false
	for {
		booted = booted || w.how == cut
		result, err, dead := w.execute(w.executor(s.refused))
		if err != nil && !w.lost {
			t.Fatal(err)
		}
		if !dead && err == nil {
			w.check(s, result)
			if took := time.Since(begin); took > operation.MaxTotal && !booted {
				t.Errorf("it took %s", took)
			}
			return endings
		}
		endings++
		time.Sleep(time.Second)
		if !w.enabled {
			// It ended after its work: a host that boots just starts the kubelet.
			w.ready()
			j, err := load(w)
			if err != nil || j == nil || j.Result == nil {
				t.Fatalf("the journal is %+v, %v", j, err)
			}
			w.check(s, j.Result)
			return endings
		}
		if w.rand.IntN(2) == 0 {
			w.how, w.endAt, w.calls = []end{kill, cut, hangUp}[w.rand.IntN(3)], 1+w.rand.IntN(30), 0
		}
	}
}
