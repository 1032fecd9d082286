// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/workloadclasses"
	"workload.openshift.io/operators/workloadclasses/metrics"
)

// newPlane is a world without machines and scheduler.
func newPlane(t testing.TB) *world {
	t.Helper()
	w := &world{companiontest.Install(t, Name), t, NoMachines, ""}
	if err := w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ci-op-x"}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.Client.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace("ci-op-x"), client.GracePeriodSeconds(0))
	})
	w.start(func(s *Settings) { s.Machines = NoMachines })
	return w
}

// call lets kube-apiserver call a webhook at an address, until the function that it returns is called.
func (w *world) call(address string) (back func()) {
	w.t.Helper()
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	set := func(url string) (before string) {
		w.eventually(func() error {
			if err := w.Client.Get(w.t.Context(), client.ObjectKey{Name: "workloadclasses.workload.openshift.io"}, config); err != nil {
				return err
			}
			before = *config.Webhooks[0].ClientConfig.URL
			config.Webhooks[0].ClientConfig.URL = &url
			return w.Client.Update(w.t.Context(), config)
		})
		return before
	}
	before := set("https://" + address + webhookPath)
	return func() { set(before) }
}

// Whatever becomes of the webhook, pods are created, and none is half a class's.
func TestPodsAreCreatedWithoutTheWebhook(t *testing.T) {
	w := newPlane(t)
	create := func() *corev1.Pod {
		t.Helper()
		pod := w.pod("created", "100m")
		if err := w.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		whole := pod.Labels[workloadclasses.ClassLabel] == "tests" && pod.Spec.RuntimeClassName != nil && pod.Spec.Overhead != nil && pod.Spec.NodeSelector["ci-workload"] == "tests"
		none := pod.Labels[workloadclasses.ClassLabel] == "" && pod.Spec.RuntimeClassName == nil && pod.Spec.Overhead == nil && pod.Spec.NodeSelector == nil
		if !whole && !none {
			t.Errorf("the pod is half classified: %v %v", pod.Labels, pod.Spec)
		}
		return pod
	}
	becomes := func(class string) {
		t.Helper()
		w.eventually(func() error { // kube-apiserver learns of the address a moment later
			if pod := create(); pod.Labels[workloadclasses.ClassLabel] != class {
				return fmt.Errorf("the class is %q, want %q", pod.Labels[workloadclasses.ClassLabel], class)
			}
			return nil
		})
	}
	becomes("tests")

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	back := w.call(closed.Addr().String())
	becomes("")
	began := time.Now()
	for range 20 {
		create()
	}
	t.Logf("webhook down: 20 pods in %s", time.Since(began).Round(time.Millisecond))
	rules, err := newRules(filepath.Join(companiontest.Base(Name), "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := (&missed{rules: rules, live: w.Client}).count(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(metrics.Missed.WithLabelValues("tests")); n < 20 {
		t.Errorf("%g pods without their class are counted, and there are 20 at least", n)
	}
	back()
	becomes("tests")

	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and answers none
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	back = w.call(silent.Addr().String())
	becomes("")
	began = time.Now()
	create()
	if took := time.Since(began); took < 4*time.Second || took > 10*time.Second {
		t.Errorf("a pod took %s; the webhook's timeout is 5s", took)
	}
	back()
	becomes("tests")
}

// Dry runs are answered, and the rules are read again when they change; a file with a mistake changes nothing.
func TestRulesAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	good, err := os.ReadFile(filepath.Join(companiontest.Base(Name), "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(string(good))
	r, err := newRules(path)
	if err != nil {
		t.Fatal(err)
	}
	before := r.current.Load()
	write(strings.Replace(string(good), "kind: WorkloadClasses", "kind: Workload", 1))
	if err := r.load(); err == nil || !strings.Contains(err.Error(), path) || r.current.Load() != before {
		t.Errorf("a file with a mistake: %v", err)
	}
	if err := r.load(); err == nil {
		t.Error("the mistake is told once only")
	}
	write(strings.ReplaceAll(string(good), "name: tests", "name: short"))
	if err := r.load(); err == nil { // a rule names the class that is gone
		t.Error("a rule of no class is taken")
	}
	write(strings.NewReplacer("name: tests", "name: short", "class: tests", "class: short").Replace(string(good)))
	if err := r.load(); err != nil || r.current.Load().Class("short") == nil {
		t.Errorf("new rules: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := r.load(); err == nil || r.current.Load().Class("short") == nil {
		t.Errorf("a file that is gone: %v", err)
	}
}

// How long an answer takes at a fixed rate, with the client on the same host.
func BenchmarkTheWebhook(b *testing.B) {
	w := newPlane(b)
	body := review(b, w.pod("posted", "100m"))
	caller := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
	post := func() error {
		response, err := caller.Post(w.Webhooks()+webhookPath, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(response.Body).Decode(&review); err != nil {
			return err
		}
		if review.Response == nil || len(review.Response.Patch) == 0 {
			return errors.New("there is no patch")
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	if err := post(); err != nil {
		b.Fatal(err)
	}
	const rate, seconds = 1000, 10
	cpu := func() (own time.Duration) { // of this process, which is the client
		var usage unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	for b.Loop() {
		spent := cpu()
		var mu sync.Mutex
		var wait sync.WaitGroup
		var took []time.Duration
		var failed error
		began := time.Now()
		for i := range rate * seconds {
			// From when it was due: else a client that is late would hide what waits.
			due := began.Add(time.Duration(i) * time.Second / rate)
			time.Sleep(time.Until(due))
			wait.Go(func() {
				err := post()
				mu.Lock()
				defer mu.Unlock()
				took, failed = append(took, time.Since(due)), errors.Join(failed, err)
			})
		}
		wait.Wait()
		all := time.Since(began)
		if failed != nil {
			b.Fatal(failed)
		}
		slices.Sort(took)
		at := func(percent int) time.Duration { return took[len(took)*percent/100] }
		b.ReportMetric(float64(len(took))/all.Seconds(), "reviews/s")
		b.ReportMetric((cpu()-spent).Seconds()/all.Seconds(), "client-CPUs")
		b.ReportMetric(float64(at(50).Microseconds()), "p50-µs")
		b.ReportMetric(float64(at(99).Microseconds()), "p99-µs")
	}
}
