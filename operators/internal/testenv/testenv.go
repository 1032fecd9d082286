// SPDX-License-Identifier: Apache-2.0

// Package testenv gives the tests of a package a kube-apiserver and etcd of their own, with the CRDs
// of all companions, and runs programs against them as processes that can be killed.
//
// The binaries are those that controller-runtime's envtest asks for: TEST_ASSET_KUBE_APISERVER,
// TEST_ASSET_ETCD and, for some tests, TEST_ASSET_KUBECTL. make operators-test sets them. Without
// them, such tests are skipped.
//
// A control plane starts with the first test that wants it. Nothing of it outlives the test
// binary, not even one that is killed: the kernel ends the processes, and a shell that waits for
// that removes the files.
package testenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The environment variables that name the binaries
// (controller-runtime, pkg/internal/testing/process/bin_path_finder.go).
const (
	kubeAPIServer = "TEST_ASSET_KUBE_APISERVER"
	etcd          = "TEST_ASSET_ETCD"
	kubectl       = "TEST_ASSET_KUBECTL"
)

// ControlPlane is a kube-apiserver with its etcd. Nothing else is there: no garbage collector, no
// scheduler, and no kubelet.
type ControlPlane struct {
	// Config is that of a cluster administrator.
	Config *rest.Config
	// Kubeconfig is a file with the same.
	Kubeconfig string
	// Client uses Config, and caches nothing.
	Client client.Client

	dir         string
	environment *envtest.Environment
	// leave ends the control plane, and left says that it has.
	leave, left chan struct{}
}

// plane is a control plane that starts once.
type plane struct {
	once    sync.Once
	current *ControlPlane
	failed  error
}

var home, hosted plane

// kinds are what Main was given.
var kinds []func(*kruntime.Scheme) error

// Main runs the tests of a package, and ends what they started. TestMain calls it. Where the test
// binary was started as one of the programs, it is that program. Scheme has the kinds that are added.
func Main(m *testing.M, programs Programs, add ...func(*kruntime.Scheme) error) {
	programs.runIfStarted()
	log.SetLogger(klog.Background())
	kinds = add
	code := m.Run()
	for _, each := range []*plane{&home, &hosted} {
		if each.current != nil {
			close(each.current.leave)
			<-each.current.left
		}
	}
	os.Exit(code)
}

// Start returns the control plane of this package's tests, and starts it for the first of them. It
// skips the test if there are no binaries.
func Start(t testing.TB) *ControlPlane { return home.start(t) }

// StartHosted returns a second control plane, which knows nothing of the first, for companions that have two clusters.
func StartHosted(t testing.TB) *ControlPlane { return hosted.start(t) }

func (p *plane) start(t testing.TB) *ControlPlane {
	t.Helper()
	for _, variable := range []string{kubeAPIServer, etcd} {
		if os.Getenv(variable) == "" {
			t.Skipf("%s does not name a binary; make operators-test does", variable)
		}
	}
	p.once.Do(func() { p.current, p.failed = start() })
	if p.failed != nil {
		t.Fatalf("control plane: %v", p.failed)
	}
	return p.current
}

// Kubectl returns the path of kubectl, or skips the test.
func Kubectl(t testing.TB) string {
	t.Helper()
	path := os.Getenv(kubectl)
	if path == "" {
		t.Skipf("%s does not name a binary; make operators-test does", kubectl)
	}
	return path
}

// Module is the directory of the module operators: the first one above the test's that has a go.mod.
// The names of source files do not tell it, since -trimpath shortens them.
func Module() string {
	directory, err := os.Getwd()
	if err != nil {
		panic(err) // go test has just set it
	}
	for above := filepath.Dir(directory); above != directory; directory, above = above, filepath.Dir(above) {
		if _, err := os.Stat(filepath.Join(directory, "go.mod")); err == nil {
			return directory
		}
	}
	panic("testenv: no go.mod above the working directory, so this is no test that go test runs")
}

// SourceOf is the directory of a module that another module, in a directory relative to this one, requires. It is downloaded if no program
// has needed it before.
func SourceOf(t testing.TB, by, module string) string {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", module)
	download.Dir = filepath.Join(Module(), by)
	out, err := download.Output()
	var source struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &source)
	}
	if err != nil || source.Dir == "" {
		t.Fatalf("go mod download %s: %v: %s", module, err, out)
	}
	return source.Dir
}

// Scheme has Kubernetes' kinds and those that Main was given.
func Scheme() *kruntime.Scheme {
	scheme := kruntime.NewScheme()
	for _, add := range append([]func(*kruntime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme}, kinds...) {
		utilruntime.Must(add(scheme)) // it is the same each time
	}
	return scheme
}

// auditPolicy writes down what ServiceAccounts do, and nothing that others do.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
- {level: None}
`

func start() (*ControlPlane, error) {
	dir, err := os.MkdirTemp("", "partition-testenv-")
	if err != nil {
		return nil, err
	}
	reap, err := removeAtEnd(dir)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
		dir:        dir,
		// A host that compiles beside needs longer than envtest's 20 seconds.
		environment: &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute},
		leave:       make(chan struct{}),
		left:        make(chan struct{}),
	}
	crds, err := filepath.Glob(filepath.Join(Module(), "deploy", "*", "crd"))
	if err != nil {
		return nil, err
	}
	c.environment.CRDDirectoryPaths = crds
	c.environment.ErrorIfCRDPathMissing = true
	apiServer, etcdServer := c.environment.ControlPlane.GetAPIServer(), &envtest.Etcd{}
	c.environment.ControlPlane.Etcd = etcdServer
	for path, set := range map[*string]string{&apiServer.Path: kubeAPIServer, &etcdServer.Path: etcd} {
		if *path, err = c.mortal(os.Getenv(set)); err != nil {
			return nil, err
		}
	}
	// envtest's own are of those that the kernel gives to connections meanwhile.
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	apiServer.SecureServing.Address, apiServer.SecureServing.Port = "127.0.0.1", strconv.Itoa(ports[0])
	etcdServer.URL = &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", ports[1])}
	etcdServer.Configure().Set("listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", ports[2]))
	apiServer.CertDir, etcdServer.DataDir = filepath.Join(dir, "kube-apiserver"), filepath.Join(dir, "etcd")
	if err := os.Mkdir(apiServer.CertDir, 0o700); err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	apiServer.Configure().
		// Some clusters have it, and a companion whose rights are too few fails there alone.
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement").
		Append("audit-policy-file", policy).
		Append("audit-log-path", c.AuditLog()).
		Append("audit-log-mode", "blocking")
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	apiServer.Err, etcdServer.Err = output, output

	started := make(chan error)
	go func() {
		// The kernel ends a process with the thread that started it.
		runtime.LockOSThread()
		_, err := c.environment.Start()
		started <- err
		<-c.leave
		if err := c.environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "control plane:", err)
		}
		reap()
		close(c.left)
	}()
	if err := <-started; err != nil {
		log, _ := os.ReadFile(output.Name())
		return nil, fmt.Errorf("%w\n%s", err, log[max(0, len(log)-4096):])
	}
	c.Config = c.environment.Config
	if err := os.WriteFile(c.Kubeconfig, c.environment.KubeConfig, 0o600); err != nil {
		return nil, err
	}
	c.Client, err = client.New(c.Config, client.Options{Scheme: Scheme()})
	return c, err
}

// Certified returns a configuration with a client certificate of a user, as one that a cluster administrator signs.
func (c *ControlPlane) Certified(t testing.TB, user string, groups ...string) *rest.Config {
	t.Helper()
	authenticated, err := c.environment.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return authenticated.Config()
}

// Kubectl runs kubectl as a cluster administrator, and returns what it printed.
func (c *ControlPlane) Kubectl(t testing.TB, arguments ...string) string {
	t.Helper()
	command := exec.Command(Kubectl(t), append([]string{"--kubeconfig", c.Kubeconfig}, arguments...)...)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// Token returns a token of a ServiceAccount, for kube-apiserver if no audience is named. If it is
// bound to a pod, it names the pod's node.
func (c *ControlPlane) Token(t testing.TB, namespace, account string, pod *corev1.Pod, audiences ...string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := c.Client.SubResource("token").Create(t.Context(), serviceAccount, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// KubeconfigOf returns a file with which the bearer of a token reaches kube-apiserver.
func (c *ControlPlane) KubeconfigOf(t testing.TB, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Directory is one for files that must go with the control plane, however this process ends.
func (c *ControlPlane) Directory() string { return c.dir }

// AuditLog is a file with what ServiceAccounts have done, one event of audit.k8s.io/v1 a line.
func (c *ControlPlane) AuditLog() string {
	return filepath.Join(c.dir, "audit.log")
}

// Requests counts what ServiceAccounts have asked for so far, without Leases: by user, and by verb and resource, such as "patch nodes/status".
func (c *ControlPlane) Requests(t testing.TB) map[string]map[string]int {
	t.Helper()
	data, err := os.ReadFile(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]map[string]int{}
	for line := range bytes.Lines(data) {
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		if event.ObjectRef.Resource == "leases" {
			continue
		}
		if count[event.User.Username] == nil {
			count[event.User.Username] = map[string]int{}
		}
		count[event.User.Username][strings.TrimSuffix(event.Verb+" "+event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")]++
	}
	return count
}

// Writes reports whether a request that [ControlPlane.Requests] has counted changes something.
func Writes(request string) bool {
	verb, _, _ := strings.Cut(request, " ")
	return verb != "get" && verb != "list" && verb != "watch"
}

// given are the ports that FreePorts returned last: the programs that they are for may not listen yet.
var given struct {
	sync.Mutex
	ports []int
}

// FreePorts returns TCP ports of 127.0.0.1 on which nobody listens, and none that it has just returned. No connection takes one
// before the process that it is for: they are below those that Linux gives to connections by default, and below
// those of Services (--service-node-port-range of kube-apiserver), and above those of a node that package host starts.
func FreePorts(n int) ([]int, error) {
	const first, last, remembered = 24000, 29999, 1000
	given.Lock()
	defer given.Unlock()
	var ports []int
	for _, at := range rand.Perm(last - first + 1) {
		port := first + at
		if slices.Contains(given.ports, port) {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		listener.Close()
		if ports = append(ports, port); len(ports) == n {
			given.ports = append(given.ports, ports...)
			given.ports = given.ports[max(0, len(given.ports)-remembered):]
			return ports, nil
		}
	}
	return nil, fmt.Errorf("fewer than %d of the ports %d to %d are free", n, first, last)
}

// mortal returns a program that is another one, and that the kernel kills when its parent ends:
// envtest lets nobody set the attributes of its processes.
func (c *ControlPlane) mortal(program string) (string, error) {
	path := filepath.Join(c.dir, "mortal-"+filepath.Base(program))
	return path, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexec setpriv --pdeathsig KILL -- '%s' \"$@\"\n", program), 0o700)
}

// removeAtEnd removes a directory when this process ends, however it does, or when the function that
// it returns is called.
func removeAtEnd(dir string) (reap func(), err error) {
	reaper := exec.Command("sh", "-c", `cat >/dev/null; until rm -rf "$0"; do sleep 1; done`, dir)
	// What ends this process' group must not end it.
	reaper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := reaper.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := reaper.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = stdin.(io.Closer).Close()
		_ = reaper.Wait()
	}, nil
}
