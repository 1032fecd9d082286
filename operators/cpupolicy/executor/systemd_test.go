// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	systemdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// fakeSystemd answers on the socket of a host's systemd.
type fakeSystemd struct {
	t       *testing.T
	h       *testHost
	lock    sync.Mutex
	units   map[string]*fakeUnit
	streams []net.Conn
	// calls are what it was asked to do, in order.
	calls []string
}

type fakeUnit struct {
	// start returns the main process, and stop ends it.
	start func() int
	stop  func(pid int)
	// deaf means that it must be killed.
	deaf      bool
	pid       int
	failed    bool
	execStart []string
	files     []string
}

func newFakeSystemd(t *testing.T, h *testHost) *fakeSystemd {
	t.Helper()
	if err := os.Mkdir(h.at("/run/systemd"), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", h.at(systemdSocket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &fakeSystemd{t: t, h: h, units: map[string]*fakeUnit{}}
	go func() {
		for {
			stream, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(stream)
		}
	}()
	return s
}

// serve speaks the protocol of D-Bus (the specification's sections on authentication and messages).
func (s *fakeSystemd) serve(stream net.Conn) {
	defer stream.Close()
	reader := bufio.NewReader(stream)
	for begun := false; !begun; {
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		answer := "ERROR"
		switch line = strings.Trim(line, "\x00\r\n"); {
		case line == "AUTH":
			answer = "REJECTED EXTERNAL"
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 0123456789abcdef0123456789abcdef"
		case line == "BEGIN":
			begun = true
			continue
		}
		if _, err := io.WriteString(stream, answer+"\r\n"); err != nil {
			return
		}
	}
	s.lock.Lock()
	s.streams = append(s.streams, stream)
	s.lock.Unlock()
	for {
		message, err := dbus.DecodeMessage(reader)
		if err != nil {
			return
		}
		s.lock.Lock()
		s.answer(stream, message)
		s.lock.Unlock()
	}
}

func (s *fakeSystemd) answer(stream net.Conn, call *dbus.Message) {
	member, _ := call.Headers[dbus.FieldMember].Value().(string)
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(call.Serial())}}
	text := member
	if len(call.Body) > 0 {
		if name, isName := call.Body[0].(string); isName {
			text += " " + name
		}
	}
	job := dbus.ObjectPath("/org/freedesktop/systemd1/job/1")
	ended := ""
	switch member {
	case "GetAll":
		path, _ := call.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		reply.Body = []any{s.properties(path)}
	case "StartUnit":
		s.calls = append(s.calls, text)
		if u := s.units[call.Body[0].(string)]; u.pid == 0 {
			u.failed, u.pid = false, u.start()
		}
		reply.Body = []any{job}
	case "StopUnit":
		s.calls = append(s.calls, text)
		reply.Body = []any{job}
		if ended = call.Body[0].(string); s.units[ended].deaf {
			ended = ""
		}
	case "KillUnit":
		s.calls = append(s.calls, text)
		ended = call.Body[0].(string)
		s.units[ended].deaf = false
	case "Reload", "ResetFailedUnit":
		s.calls = append(s.calls, text)
	}
	if len(reply.Body) > 0 {
		reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(reply.Body...))
	}
	if ended != "" {
		if u := s.units[ended]; u.pid != 0 {
			u.stop(u.pid)
			u.pid = 0
		}
	}
	if err := reply.EncodeTo(stream, binary.LittleEndian); err != nil {
		return
	}
	if ended != "" {
		signal := &dbus.Message{Type: dbus.TypeSignal, Body: []any{uint32(1), job, ended, "done"}, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1")), dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.systemd1.Manager"),
			dbus.FieldMember: dbus.MakeVariant("JobRemoved"), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(uint32(1), job, ended, "done")),
		}}
		for _, stream := range s.streams {
			_ = signal.EncodeTo(stream, binary.LittleEndian)
		}
	}
}

func (s *fakeSystemd) properties(path dbus.ObjectPath) map[string]dbus.Variant {
	u := &fakeUnit{}
	for name, unit := range s.units {
		if strings.HasSuffix(string(path), "/"+systemdbus.PathBusEscape(name)) {
			u = unit
		}
	}
	state := "inactive"
	if u.pid != 0 {
		state = "active"
	} else if u.failed {
		state = "failed"
	}
	type command struct {
		Path          string
		Args          []string
		IgnoreFailure bool
	}
	properties := map[string]dbus.Variant{"ActiveState": dbus.MakeVariant(state), "MainPID": dbus.MakeVariant(uint32(u.pid)), "NRestarts": dbus.MakeVariant(uint32(0))}
	if len(u.execStart) > 0 {
		properties["ExecStart"] = dbus.MakeVariant([]command{{u.execStart[0], u.execStart, false}})
	}
	if len(u.files) > 0 {
		properties["FragmentPath"], properties["DropInPaths"] = dbus.MakeVariant(u.files[0]), dbus.MakeVariant(u.files[1:])
	}
	return properties
}

// hangUp closes all connections, as systemd does when it is executed again. The lock must be held.
func (s *fakeSystemd) hangUp() {
	for _, stream := range s.streams {
		_ = stream.Close()
	}
	s.streams = nil
}

// called returns what systemd was asked to do.
func (s *fakeSystemd) called() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.calls)
}

func stopProcess(pid int) {
	_ = syscall.Kill(pid, syscall.SIGTERM)
	for syscall.Kill(pid, 0) == nil {
		time.Sleep(time.Millisecond)
	}
}

// addKubelet gives systemd a unit that runs the host's kubelet, and starts it.
func (s *fakeSystemd) addKubelet(name string, args ...string) *fakeUnit {
	u := &fakeUnit{execStart: append([]string{s.h.at("kubelet")}, args...), files: []string{"/etc/systemd/system/" + name}, stop: stopProcess}
	u.start = func() int { return s.h.startKubelet("kubelet.log", u.execStart[1:]...) }
	u.pid = u.start()
	s.units[name] = u
	return u
}

// addRKE2 gives systemd a unit that is rke2, and starts it. Its main process is this one, and the
// kubelet a child of it.
func (s *fakeSystemd) addRKE2(unit string) {
	for _, dir := range []string{rke2Config, rke2Log} {
		if err := os.MkdirAll(s.h.at(filepath.Dir(dir)), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	var kubelet int
	u := &fakeUnit{files: []string{"/etc/systemd/system/" + unit}, stop: func(int) { stopProcess(kubelet) }}
	u.start = func() int {
		args, err := readRKE2(hostDisk(s.h.root))
		if err != nil {
			s.t.Error(err)
		}
		policy := last(effective(args), policyFlag).value
		kubelet = s.h.startKubelet(rke2Log, "--config="+testConfig, "--root-dir="+testRootDir, "--cpu-manager-policy="+policy)
		return os.Getpid()
	}
	s.units["rke2-server.service"] = &fakeUnit{}
	s.units[unit] = u
	u.pid = u.start()
}

// addAgent lets systemd start the host unit. Its process is this one.
func (s *fakeSystemd) addAgent(kubelet string) {
	host := s.h.open()
	u := &fakeUnit{}
	u.start = func() int {
		s.checkInstalled(kubelet)
		go func() {
			err := host.Execute(quiet(s.t))
			s.lock.Lock()
			defer s.lock.Unlock()
			u.pid, u.failed = 0, err != nil
		}()
		return os.Getpid()
	}
	s.units[UnitName] = u
}

// checkInstalled checks what a host needs that boots now.
func (s *fakeSystemd) checkInstalled(kubelet string) {
	content := s.h.read(filepath.Join(unitDirectory, UnitName))
	for _, line := range []string{"Before=" + kubelet, "ExecStart=/var/lib/partition-agent/partition-agent cpu-policy execute", "Type=notify", "Restart=on-failure"} {
		if !strings.Contains(content, line+"\n") {
			s.t.Errorf("the host unit has no line %q:\n%s", line, content)
		}
	}
	if target, err := filepath.EvalSymlinks(s.h.at(wantsLink(kubelet))); err != nil || target != s.h.at(filepath.Join(unitDirectory, UnitName)) {
		s.t.Errorf("the kubelet's unit wants %s, %v", target, err)
	}
	for path, mode := range map[string]fs.FileMode{Directory: fs.ModeDir | 0o700, agentFile: 0o700, journalFile: 0o600} {
		if info, err := os.Stat(s.h.at(path)); err != nil || info.Mode() != mode {
			s.t.Errorf("%s has mode %v (%v), want %v", path, info.Mode(), err, mode)
		}
	}
	if s.calls[len(s.calls)-3] != "Reload" {
		s.t.Errorf("systemd has not read the host unit: %q", s.calls)
	}
}

// checkRemoved checks that nothing of the agent runs again when the host boots.
func (s *fakeSystemd) checkRemoved(kubelet string) {
	s.t.Helper()
	for _, path := range []string{filepath.Join(unitDirectory, UnitName), filepath.Dir(wantsLink(kubelet)), agentFile} {
		if _, err := os.Lstat(s.h.at(path)); !errors.Is(err, fs.ErrNotExist) {
			s.t.Errorf("%s is still there: %v", path, err)
		}
	}
	if calls := s.called(); calls[len(calls)-1] != "Reload" {
		s.t.Errorf("systemd has not read that the host unit is gone: %q", calls)
	}
}

func (h *testHost) waitFor(what string, condition func() bool) {
	h.t.Helper()
	err := poll.Until(h.t.Context(), pause, patience, func(context.Context) error {
		if !condition() {
			return errors.New("it is not so yet")
		}
		return nil
	})
	if err != nil {
		h.t.Fatalf("%s: not within %s", what, patience)
	}
}

func TestTheHostUnitSwitchesAKubelet(t *testing.T) {
	h := newTestHost(t)
	s := newFakeSystemd(t, h)
	kubelet := s.addKubelet(defaultUnit, kubeletArgs()...)
	s.addAgent(defaultUnit)
	kubelet.deaf = true // the first time
	request := requestOf("op", operation.Static)
	request.Driver = operation.DriverKubelet
	request.Limits.RollBack.Duration = 1500 * time.Millisecond
	driver, err := h.open().driver(t.Context(), operation.DriverKubelet, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.waitHealthy(driver)
	driver.close()
	result, err := h.open().Run(quiet(t), request, h.program())
	if err != nil || result.Outcome != operation.Succeeded || result.Policy != operation.Static {
		t.Fatalf("the result is %+v, %v", result, err)
	}
	h.waitFor("the end of the host unit", func() bool {
		s.lock.Lock()
		defer s.lock.Unlock()
		return s.units[UnitName].pid == 0
	})
	calls, want := s.called(), []string{"Reload", "ResetFailedUnit " + UnitName, "StartUnit " + UnitName, "StopUnit kubelet.service", "KillUnit kubelet.service", "ResetFailedUnit kubelet.service", "StartUnit kubelet.service", "Reload"}
	if !slices.Equal(calls, want) {
		t.Errorf("systemd was asked to %q, want %q", calls, want)
	}
	s.checkRemoved(defaultUnit)
	if again, err := h.open().Run(quiet(t), request, h.program()); err != nil || *again != *result {
		t.Errorf("the same request, repeated, has the result %+v, %v", again, err)
	}
}

// systemd is executed again while the kubelet is stopped, and both processes of the agent lose their connections.
func TestALostConnectionToSystemdLeavesNoKubeletDown(t *testing.T) {
	h := newTestHost(t)
	s := newFakeSystemd(t, h)
	kubelet := s.addKubelet(defaultUnit, kubeletArgs()...)
	s.addAgent(defaultUnit)
	kubelet.stop = func(pid int) {
		stopProcess(pid)
		s.hangUp()
		kubelet.stop = stopProcess
	}
	request := requestOf("op", operation.Static)
	request.Driver = operation.DriverKubelet
	request.Limits.RollBack.Duration = 1500 * time.Millisecond
	driver, err := h.open().driver(t.Context(), operation.DriverKubelet, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.waitHealthy(driver)
	driver.close()
	result, err := h.open().Run(quiet(t), request, h.program())
	if err != nil || result.Outcome != operation.RolledBack || result.Step != string(Stop) || result.Policy != operation.None {
		t.Fatalf("the result is %+v, %v", result, err)
	}
	h.waitFor("the end of the host unit", func() bool {
		s.lock.Lock()
		defer s.lock.Unlock()
		return s.units[UnitName].pid == 0
	})
	if kubelet.pid == 0 || h.read(testDropIn) != "" {
		t.Errorf("the kubelet is process %d, and the drop-in %q", kubelet.pid, h.read(testDropIn))
	}
	s.checkRemoved(defaultUnit)
}

func TestRKE2IsRestartedForAPolicy(t *testing.T) {
	h := newTestHost(t)
	s := newFakeSystemd(t, h)
	const unit = "rke2-agent.service"
	s.addRKE2(unit)
	s.addAgent(unit)
	request := requestOf("op", operation.Static)
	request.Driver = operation.DriverRKE2
	driver, err := h.open().driver(t.Context(), operation.DriverRKE2, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.waitHealthy(driver)
	driver.close()
	result, err := h.open().Run(quiet(t), request, h.program())
	if err != nil || result.Outcome != operation.Succeeded || result.Policy != operation.Static {
		t.Fatalf("the result is %+v, %v", result, err)
	}
	if got, want := h.read(ourRKE2), "kubelet-arg+:\n- \"cpu-manager-policy=static\"\n"; got != want {
		t.Errorf("rke2's drop-in is %q, want %q", got, want)
	}
	h.waitFor("the end of the host unit", func() bool {
		s.lock.Lock()
		defer s.lock.Unlock()
		return s.units[UnitName].pid == 0
	})
	s.checkRemoved(unit)
}

func TestAFailureHasTheErrorOfTheKubelet(t *testing.T) {
	for _, driverName := range []operation.Driver{operation.DriverKubelet, operation.DriverRKE2} {
		t.Run(string(driverName), func(t *testing.T) {
			h := newTestHost(t)
			s := newFakeSystemd(t, h)
			const stale = "E1103 10:00:00.000000 1 run.go:72] \"command failed\" err=\"last week\"\n"
			unit := defaultUnit
			if driverName == operation.DriverKubelet {
				h.write("kubelet.log", "")
				s.addKubelet(unit, kubeletArgs()...)
				// Only the host has a journal.
				h.write("bin/journalctl", "#!/bin/sh\n[ \"$1\" = --unit="+unit+" ] && cat "+h.at("kubelet.log")+"\n")
				h.chmod("bin/journalctl", 0o755)
				t.Setenv("PATH", h.at("bin")+":"+os.Getenv("PATH"))
			} else {
				unit = rke2Units[1]
				h.write(rke2Log, stale)
				s.addRKE2(unit)
			}
			s.addAgent(unit)
			driver, err := h.open().driver(t.Context(), driverName, nil)
			if err != nil {
				t.Fatal(err)
			}
			h.waitHealthy(driver)
			driver.close()
			h.write(testConfig, h.read(testConfig)+"broken: static\n")
			// A slow host may not start a kubelet in the time in which a quick one has long ended.
			for i, limit := range []time.Duration{2 * time.Second, 10 * time.Second, 40 * time.Second} {
				request := requestOf(fmt.Sprintf("op-%d", i), operation.Static)
				request.Driver = driverName
				request.Limits.Total.Duration = request.Limits.RollBack.Duration + limit
				result, err := h.open().Run(quiet(t), request, h.program())
				if err != nil || result.Outcome != operation.RolledBack || result.Policy != operation.None {
					t.Fatalf("the result is %+v, %v", result, err)
				}
				h.waitFor("the end of the host unit", func() bool {
					s.lock.Lock()
					defer s.lock.Unlock()
					return s.units[UnitName].pid == 0
				})
				if strings.Contains(result.KubeletError, "last week") {
					t.Errorf("the kubelet's own error is from before the switch: %+v", result)
				}
				if result.Step == "healthy" && strings.Contains(result.KubeletError, "broken under the policy static") {
					return
				}
			}
			t.Error("no result has the kubelet's own error")
		})
	}
}

func TestAHostUnitThatDoesNotRunIsGivenUp(t *testing.T) {
	h := newTestHost(t)
	s := newFakeSystemd(t, h)
	s.addKubelet(defaultUnit, kubeletArgs()...)
	s.units[UnitName] = &fakeUnit{start: func() int { return 0 }}
	request := requestOf("op", operation.Static)
	request.Driver = operation.DriverKubelet
	result, err := h.open().Run(quiet(t), request, h.program())
	if err != nil || result.Outcome != operation.Failed || result.Step != operation.StepValidate || !strings.Contains(result.Message, "journalctl -u "+UnitName) {
		t.Errorf("the result is %+v, %v", result, err)
	}
	s.checkRemoved(defaultUnit)
}

func TestAHostUnitThatCannotBeWrittenIsGivenUp(t *testing.T) {
	h := newTestHost(t)
	s := newFakeSystemd(t, h)
	s.addKubelet(defaultUnit, kubeletArgs()...)
	s.units[UnitName] = &fakeUnit{}
	h.write(filepath.Join(unitDirectory, UnitName, "in-the-way"), "")
	request := requestOf("op", operation.Static)
	request.Driver = operation.DriverKubelet
	result, err := h.open().Run(quiet(t), request, h.program())
	if err != nil || result.Outcome != operation.Failed || result.Step != operation.StepValidate || !strings.Contains(result.Message, UnitName) {
		t.Errorf("the result is %+v, %v", result, err)
	}
}

func TestAHostWithoutSystemdIsSaid(t *testing.T) {
	h := newTestHost(t)
	request := requestOf("op", operation.Static)
	request.Driver = operation.DriverKubelet
	result, err := h.open().Run(quiet(t), request, h.program())
	if err != nil || result.Outcome != operation.Failed || !strings.Contains(result.Message, systemdSocket) {
		t.Errorf("the result is %+v, %v", result, err)
	}
}

// A host of RKE2, say, for which nobody has set the driver.
func TestAHostWithoutTheUnitIsSaid(t *testing.T) {
	h := newTestHost(t)
	newFakeSystemd(t, h)
	driver, err := h.open().driver(t.Context(), operation.DriverKubelet, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer driver.close()
	if _, err := driver.plan(t.Context(), operation.Static); err == nil || !strings.Contains(err.Error(), "unit "+defaultUnit+": is not there") {
		t.Errorf("the error is %v", err)
	}
}

func TestAKubeletIsPrepared(t *testing.T) {
	h := newTestHost(t)
	s := newFakeSystemd(t, h)
	u := s.addKubelet(defaultUnit, "--config="+testConfig, "--root-dir="+testRootDir)
	u.execStart = append(u.execStart, "$KUBELET_EXTRA_ARGS", "--node-labels=a=b c,d=50%")
	path, err := h.open().Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := "ExecStart=\nExecStart=" + h.at("kubelet") + " --config=" + testConfig + " --root-dir=" + testRootDir + ` $KUBELET_EXTRA_ARGS "--node-labels=a=b c,d=50%%" --config-dir=` + preparedConfigDir + "\n"
	if content := h.read(path); path != "/etc/systemd/system/kubelet.service.d/99-partition-agent-config-dir.conf" || !strings.HasSuffix(content, want) {
		t.Errorf("%s is\n%s, want\n%s", path, content, want)
	}
	if info, err := os.Stat(h.at(preparedConfigDir)); err != nil || !info.IsDir() {
		t.Errorf("the directory is %v, %v", info, err)
	}
	if calls := s.called(); !slices.Equal(calls, []string{"Reload"}) {
		t.Errorf("systemd was asked to %q", calls)
	}
	u.execStart = append(u.execStart, "--config-dir="+preparedConfigDir)
	if path, err := h.open().Prepare(t.Context()); err != nil || path != "" {
		t.Errorf("a kubelet with a --config-dir is prepared: %s, %v", path, err)
	}

	u.execStart = []string{"/bin/bash", "-c", "kubelet"}
	if _, err := h.open().Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "ExecStart runs /bin/bash") {
		t.Errorf("the error of a shell is %v", err)
	}
}

func TestTheReservationIsWrittenToBoth(t *testing.T) {
	formula := func(cpus, maxPods int) resource.Quantity {
		return *resource.NewMilliQuantity(int64(1000*cpus+maxPods), resource.DecimalSI)
	}
	h := newTestHost(t)
	if err := os.MkdirAll(h.at("/etc/rancher/rke2"), 0o755); err != nil {
		t.Fatal(err)
	}
	for maxPods, test := range map[int]struct{ config, want string }{
		0:   {"", "4110m"},
		200: {"", "4200m"},
		300: {"kubelet-arg: [max-pods=250]\n", "4300m"},
	} {
		h.write(rke2Config, test.config)
		if _, amount, err := h.open().Reserve(t.Context(), operation.DriverRKE2, formula, maxPods); err != nil || amount.String() != test.want {
			t.Errorf("%d pods with the configuration %q reserve %s (%v), want %s", maxPods, test.config, &amount, err, test.want)
		}
	}
	h.write(rke2Config, "kubelet-arg: [max-pods=200]\n")
	path, amount, err := h.open().Reserve(t.Context(), operation.DriverRKE2, formula, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := h.read(path), "kubelet-arg+:\n- \"system-reserved=cpu=4200m\"\n- \"kube-reserved=cpu=4200m\"\n"; got != want || path != "/etc/rancher/rke2/config.yaml.d/99-z00-harvester-reserved-resources.yaml" || amount.String() != "4200m" {
		t.Errorf("%s is %q (%s), want %q", path, got, &amount, want)
	}

	h.write(testConfig, strings.Replace(h.read(testConfig), "{cpu: 500m}", "{memory: 1Gi}\nmaxPods: 1000", 1))
	s := newFakeSystemd(t, h)
	s.addKubelet(defaultUnit, kubeletArgs()...)
	path, _, err = h.open().Reserve(t.Context(), operation.DriverKubelet, formula, 0)
	if err != nil {
		t.Fatal(err)
	}
	config, err := readConfiguration(hostDisk(h.root), testConfig, testConfigDir)
	if err != nil {
		t.Fatal(err)
	}
	if path != testConfigDir+"/99-z00-harvester-reserved-resources.conf" || config.KubeReserved["cpu"] != "5" || config.SystemReserved["cpu"] != "5" || config.KubeReserved["memory"] != "1Gi" {
		t.Errorf("%s is\n%s\nand the configuration %+v", path, h.read(path), config.KubeletConfiguration)
	}
}

func TestTheReservationAsksAKubeletThatRKE2Runs(t *testing.T) {
	h := newTestHost(t)
	h.write(testConfig, h.read(testConfig)+"maxPods: 300\n")
	newFakeSystemd(t, h).addRKE2("rke2-agent.service")
	if _, amount, err := h.open().Reserve(t.Context(), operation.DriverRKE2, func(_, maxPods int) resource.Quantity {
		return *resource.NewQuantity(int64(maxPods), resource.DecimalSI)
	}, 0); err != nil || amount.Value() != 300 {
		t.Errorf("the most pods are %s, %v, want 300", &amount, err)
	}
}

func TestTheKubeletsOwnErrorIsFound(t *testing.T) {
	for name, test := range map[string]struct{ log, want string }{
		"why it ended":         {"I1103 10:00:00.1 1 x.go:1] \"a\"\nE1103 10:00:00.2 1 run.go:72] \"command failed\" err=\"failed to validate kubelet configuration\"\nsystemd: exited\n", `E1103 10:00:00.2 1 run.go:72] "command failed" err="failed to validate kubelet configuration"`},
		"before another error": {"E1103 10:00:00.1 1 kubelet.go:9] \"Failed to start ContainerManager\" err=\"could not restore state\"\nE1103 10:00:00.2 1 x.go:1] \"other\"\n", `E1103 10:00:00.1 1 kubelet.go:9] "Failed to start ContainerManager" err="could not restore state"`},
		"the last error":       {"E1103 10:00:00.1 1 x.go:1] \"first\"\nE1103 10:00:00.2 1 x.go:1] \"second\"\nI1103 10:00:00.3 1 x.go:1] \"third\"\n", `E1103 10:00:00.2 1 x.go:1] "second"`},
		"of rke2":              {"time=\"2025-11-03T10:00:00Z\" level=info msg=\"a\"\ntime=\"2025-11-03T10:00:01Z\" level=fatal msg=\"invalid kubelet-arg\"\n", `time="2025-11-03T10:00:01Z" level=fatal msg="invalid kubelet-arg"`},
		"a panic":              {"panic: oops\n\ngoroutine 1\n", "panic: oops"},
		"none":                 {"I1103 10:00:00.3 1 x.go:1] \"third\"\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := errorIn(test.log); got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
}

func TestOnlyWhatALogHasGotSinceIsRead(t *testing.T) {
	const before, after = "E1103 10:00:00.1 1 x.go:1] \"before\"\n", "E1103 10:00:00.2 1 x.go:1] \"after\"\n"
	long := strings.Repeat("I1103 10:00:00.3 1 x.go:1] \"nothing\"\n", 10000)
	for name, test := range map[string]struct {
		log  string
		size int64
		want string
	}{
		"nothing new":                     {before, int64(len(before)), ""},
		"an error":                        {before + after, int64(len(before)), "after"},
		"another file in its place":       {after, int64(len(long)), "after"},
		"a log that was not there before": {after, 0, "after"},
		"more than is read":               {long + after, 10, "after"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t)
			h.write("/var/log/kubelet.log", test.log)
			if got := h.open().errorInFile("/var/log/kubelet.log", test.size); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("the error is %q, want %q", got, test.want)
			}
		})
	}
}
