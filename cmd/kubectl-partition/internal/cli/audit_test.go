// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/node/audit"
	"workload.openshift.io/partition"
)

// auditResult is a result with names that want to change the terminal.
var auditResult = &audit.Result{
	CPUs: "0-3", Pools: []audit.Pool{{Type: "management", CPUs: "0"}, {Type: "unconfined"}}, HostCPUs: "2", CgroupVersion: 1, CgroupDriver: "cgroupfs", Runtime: "containerd v2.4.2", CPUManagerPolicy: "static",
	Findings: []audit.Finding{{Code: audit.CodeOffPool, Object: "container c\x1b[2J of pod ns/a", Type: "management", Message: "it may use CPU 0-1\nand more", Remedy: "restart the kubelet"}},
	Notes:    []audit.Finding{{Code: audit.NoteProcesses, Object: "ssh.service", Message: `1 process may use CPU 1-3 outside the pools: "sshd"`, Remedy: "kubectl partition render --host"}},
	Containers: []audit.Container{
		{Namespace: "ns", Pod: "a", Kind: "pod", Type: "management", Usage: audit.Usage{CPUs: "0", Used: []time.Duration{3 * time.Second, 0}, Weight: 409, Quota: 500}},
		{Namespace: "ns", Pod: "a", Kind: "sandbox", Type: "management", Usage: audit.Usage{CPUs: "0", Used: []time.Duration{0, 0}, Weight: 2}},
		{Namespace: "ns", Pod: "a", Name: "c\x1b[2J", Kind: "container", Type: "management", Usage: audit.Usage{CPUs: "0-1", Used: []time.Duration{3 * time.Second, 20000}, Weight: 409, Quota: 500}},
	},
}

func TestAuditPrints(t *testing.T) {
	watched := &audit.WatchResult{CgroupVersion: 1, Method: "m", Resolution: "r", Duration: time.Minute, Looks: 12, Containers: []audit.Watched{
		{Namespace: "ns", Pod: "a", Name: "c\x1b", Type: "management", Expected: "0", OffSet: 5 * time.Millisecond, LooksOff: 1, Changes: []audit.Change{{From: "0", To: "0-1"}}},
		{Namespace: "ns", Pod: "b", Name: "c", Type: "-", Expected: "1-3"},
	}, Findings: []audit.Seen{{Finding: audit.Finding{Code: audit.CodeOffPool, Object: "container c\x1b of pod ns/a", Message: "it may use CPU 0-1", Remedy: "restart it"}, Looks: 1}}}
	for name, print := range map[string]func(*bytes.Buffer) error{
		"table.txt": func(b *bytes.Buffer) error { return printAudit(b, auditResult, false) },
		"wide.txt":  func(b *bytes.Buffer) error { return printAudit(b, auditResult, true) },
		"off.txt":   func(b *bytes.Buffer) error { return printAudit(b, &audit.Result{CPUs: "0-3", CgroupVersion: 2}, false) },
		"watch.txt": func(b *bytes.Buffer) error { return printWatch(b, watched, false) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := print(&got); err != nil {
				t.Fatal(err)
			}
			expectGolden(t, "audit/"+name, got.String())
			if strings.Contains(got.String(), "\x1b") {
				t.Error("a name can change the terminal")
			}
		})
	}
}

// A node does not know what namespaces allow. kube-apiserver is asked seldom, and what it does not say is not guessed.
func TestAuditAsksWhatNamespacesAllow(t *testing.T) {
	client := fake.NewClientset(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "operators", Annotations: map[string]string{partition.AllowedAnnotation: "management"}}},
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}})
	client.PrependReactor("get", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if name := action.(clienttesting.GetAction).GetName(); name == "secret" {
			return true, nil, apierrors.NewForbidden(v1.Resource("namespaces"), name, nil)
		}
		return false, nil, nil
	})
	now := time.Unix(0, 0)
	ask := allowed(client.CoreV1().Namespaces(), func() time.Time { return now })
	for range 3 {
		for name, want := range map[string]map[string]string{"operators": {partition.AllowedAnnotation: "management"}, "tenant": {}, "gone": nil} {
			if got, err := ask(t.Context(), name); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("namespace %s has the annotations %v (%v), want %v", name, got, err, want)
			}
		}
		now = now.Add(10 * time.Second)
	}
	if asked := len(client.Actions()); asked != 3 {
		t.Errorf("kube-apiserver is asked %d times within half a minute, want once for each namespace", asked)
	}
	if _, err := ask(t.Context(), "secret"); !apierrors.IsForbidden(err) {
		t.Errorf("without the right the error is %v", err)
	}
	if err := client.Tracker().Update(v1.SchemeGroupVersion.WithResource("namespaces"), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "operators"}}, ""); err != nil {
		t.Fatal(err)
	}
	now = now.Add(answerAge)
	if got, err := ask(t.Context(), "operators"); err != nil || len(got) != 0 {
		t.Errorf("a minute later it has the annotations %v (%v), want none", got, err)
	}
}

func TestWrongFlagsOfAuditAreNamed(t *testing.T) {
	expectRefused(t, newAudit, map[string]string{
		"--for 1m":                                 "--for needs --watch",
		"--watch --interval 1ms":                   "--interval is 1ms, and must be at least 100ms",
		"--serve nonsense":                         `--serve "nonsense" is not an address`,
		"--watch --serve :1":                       "[serve watch]",
		"--runtime-endpoint tcp://localhost:1":     `runtime endpoint "tcp://localhost:1" is not a socket of this host`,
		"--serve 127.0.0.1:0 --tls-cert-file x":    "tls-private-key-file",
		"--root /nonexistent --runtime-endpoint /": "/nonexistent/sys/fs/cgroup has no cgroups of either version",
		"pod":                                  `unknown command "pod"`,
		"--serve 192.0.2.1:0":                  "192.0.2.1:0",
		"--kubeconfig /nonexistent/admin.conf": "/nonexistent/admin.conf",
		"--from /nonexistent --record a":       "[from record]",
		"--from /nonexistent":                  "open /nonexistent: no such file or directory",
		"--from .":                             "open node.txtar: no such file or directory",
	})
}

// A record is audited in place of this node.
func TestAuditOfARecord(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	command := newAudit(streams)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs([]string{"--from", "../../../../node/audit/testdata/v2-systemd.txtar"})
	if err := command.ExecuteContext(t.Context()); !errors.Is(err, errFound) || !strings.Contains(out.String(), "cgroup v2 (systemd)") || !strings.Contains(out.String(), "FINDING ") {
		t.Errorf("the error is %v, and it printed\n%s", err, out)
	}
}

// expectRefused runs a command with wrong flags. Each error has a text, and nothing is printed.
func expectRefused(t *testing.T, make func(genericiooptions.IOStreams) *cobra.Command, wrong map[string]string) {
	t.Helper()
	for args, want := range wrong {
		t.Run(args, func(t *testing.T) {
			streams, _, out, errOut := genericiooptions.NewTestIOStreams()
			command := make(streams)
			command.SilenceErrors, command.SilenceUsage = true, true
			command.SetArgs(strings.Fields(args))
			err := command.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
				t.Errorf("the error is %v, want one with %q; printed %s", err, want, out)
			}
			if code := ExitCode(err, errOut); code != 2 {
				t.Errorf("the exit code is %d, want 2", code)
			}
		})
	}
}

// Off the loopback interface only those get metrics whom kube-apiserver knows and allows.
func TestMetricsAreForThoseWhoMayGetThem(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch r.URL.Path {
		case "/apis/authentication.k8s.io/v1/tokenreviews":
			var review authenticationv1.TokenReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			if who := review.Spec.Token; who == "prometheus" || who == "other" {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: who}}
			}
			answer = review
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			var review authorizationv1.SubjectAccessReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			path := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "prometheus" && path != nil && path.Path == "/metrics" && path.Verb == "get"
			answer = review
		default:
			t.Errorf("it asks for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := authenticated(client, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		token, path string
		want        int
	}{
		{"prometheus", "/metrics", http.StatusOK}, {"prometheus", "/debug", http.StatusForbidden}, {"other", "/metrics", http.StatusForbidden},
		{"unknown", "/metrics", http.StatusUnauthorized}, {"", "/metrics", http.StatusUnauthorized}, {"", "/healthz", http.StatusOK},
	} {
		request, answer := httptest.NewRequest("GET", test.path, nil), httptest.NewRecorder()
		if test.token != "" {
			request.Header.Set("Authorization", "Bearer "+test.token)
		}
		handler.ServeHTTP(answer, request)
		if answer.Code != test.want {
			t.Errorf("token %q gets %s with %d, want %d", test.token, test.path, answer.Code, test.want)
		}
	}
}

// serving starts --serve at the address, and returns the one at which it listens.
func serving(t *testing.T, args ...string) string {
	t.Helper()
	reader, writer := io.Pipe()
	streams := genericiooptions.IOStreams{Out: io.Discard, ErrOut: writer}
	command := newAudit(streams)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(append([]string{"--root=/nonexistent", "--runtime-endpoint=/nonexistent"}, args...))
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		if err := command.ExecuteContext(ctx); err != nil {
			_ = writer.CloseWithError(err) // it never fails
		}
	}()
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		if address, found := strings.CutPrefix(lines.Text(), "serving metrics at "); found {
			go func() { _, _ = io.Copy(io.Discard, reader) }() // what else it says
			t.Cleanup(func() { stop(); <-ended })
			return address
		}
	}
	stop()
	t.Fatalf("it does not serve: %v", lines.Err())
	return ""
}

// However many clients there are, serving takes a bounded share of the node.
func TestServingIsBounded(t *testing.T) {
	address := serving(t, "--serve=127.0.0.1:0")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	get := func(timeout time.Duration) (code int, err error) {
		client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	if code, err := get(time.Minute); code != http.StatusOK {
		t.Errorf("the answer is %d (%v), want 200", code, err)
	}
	request.Header.Set("Large", strings.Repeat("x", maxHeader+8<<10))
	if code, _ := get(time.Minute); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of %d bytes gets %d, want 431", maxHeader+8<<10, code)
	}
	request.Header.Del("Large")
	for range maxConnections {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
	}
	if code, err := get(500 * time.Millisecond); err == nil {
		t.Errorf("during %d connections another gets %d, want none", maxConnections, code)
	}
}

// A renewed certificate is served without a restart.
func TestRenewedCertificateIsServed(t *testing.T) {
	directory := t.TempDir()
	f := auditOptions{tlsCertificate: filepath.Join(directory, "tls.crt"), tlsKey: filepath.Join(directory, "tls.key")}
	renew := func(name string) {
		certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for path, data := range map[string][]byte{f.tlsKey: key, f.tlsCertificate: certificate} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew("before")
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := f.withTLS(t.Context(), plain, "")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	serves := func(name string) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) {
			connection, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return false, err
			}
			defer connection.Close()
			return slices.Contains(connection.ConnectionState().PeerCertificates[0].DNSNames, name), nil
		}
	}
	if is, err := serves("before")(t.Context()); !is {
		t.Fatalf("it does not serve the first certificate (%v)", err)
	}
	renew("after")
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, serves("after")); err != nil {
		t.Errorf("it does not serve the renewed certificate: %v", err)
	}
}

// The manifest runs the command with flags that it has, and with few privileges.
func TestAuditManifest(t *testing.T) {
	data, err := os.ReadFile("../../deploy/audit.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.Contains(document, "kind: DaemonSet") {
			if err := yaml.UnmarshalStrict([]byte(document), &set); err != nil {
				t.Fatal(err)
			}
		}
	}
	spec := set.Spec.Template.Spec
	if len(spec.Containers) != 1 {
		t.Fatalf("the DaemonSet has %d containers, want 1", len(spec.Containers))
	}
	container := spec.Containers[0]
	command := newAudit(genericiooptions.NewTestIOStreamsDiscard())
	if err := command.ParseFlags(container.Command[2:]); err != nil {
		t.Errorf("the command %q: %v", container.Command, err)
	}
	for _, mount := range container.VolumeMounts {
		if !mount.ReadOnly || !strings.HasPrefix(mount.MountPath, "/host/") {
			t.Errorf("the mount %s is not read-only, or not below the root that the command has", mount.MountPath)
		}
	}
	if container.Resources.Limits.Memory().IsZero() {
		t.Error("the container has no memory limit, and listens to anyone who can reach it")
	}
	security := container.SecurityContext
	if security.Privileged != nil || len(security.Capabilities.Add) != 1 || security.Capabilities.Add[0] != "SYS_PTRACE" || security.Capabilities.Drop[0] != "ALL" {
		t.Errorf("the container may do %+v, want all capabilities dropped but SYS_PTRACE", security)
	}
}

func TestAuditResultIsAVersionedObject(t *testing.T) {
	data, err := json.Marshal(auditResult)
	if err != nil || !strings.Contains(string(data), `"containers":[{"namespace":"ns","pod":"a","kind":"pod","type":"management","cgroup":""`) {
		t.Errorf("the result is %s (%v), want rows with what the kernel said next to the names", data, err)
	}
}
