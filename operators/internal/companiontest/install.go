// SPDX-License-Identifier: Apache-2.0

package companiontest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // as in the real program
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/cmd/partition-controller/app"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/testenv"
)

// program is partition-controller, for testenv.
const program = "partition-controller"

// subject is the companion whose tests run; nil where tests are about several.
var subject companion.Companion

// Main runs the tests of a package, whose test binary is also partition-controller with this companion.
func Main(m *testing.M, c companion.Companion) {
	subject = c
	var add []func(*runtime.Scheme) error
	if more := c.Needs(&configv1alpha1.ControllerConfiguration{}).AddToScheme; more != nil {
		add = append(add, more)
	}
	testenv.Main(m, testenv.Programs{program: func() int {
		command := app.NewCommand(c)
		command.SetContext(ctrl.SetupSignalHandler())
		return cli.Run(command)
	}}, add...)
}

// Base is the directory with a companion's manifests. One that no user gets has them with it.
func Base(name string) string {
	own := filepath.Join(testenv.Module(), "internal", name, "deploy")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return filepath.Join(testenv.Module(), "deploy", name)
}

// Installed is a companion whose manifests are on a control plane. There is no kubelet, so a test
// starts its controllers and webhooks.
type Installed struct {
	*testenv.ControlPlane
	Name string
	// Namespace is that of its Deployments.
	Namespace string
	// Hosted is the hosted cluster, in which nothing runs; nil if the companion has one cluster. AddHosted makes it.
	Hosted *Installed
	// controllers and webhooks are the ports of the replicas that were started last.
	controllers, webhooks ports
	// server is the process that serves the webhooks.
	server *testenv.Process
}

// ports are those of a process. Own are those of the endpoints that the companion's settings have.
type ports struct {
	webhook, metrics, health int
	own                      []int
}

// Install brings a companion's manifests onto the control plane, as make install does.
func Install(t testing.TB, name string) *Installed {
	t.Helper()
	i := &Installed{ControlPlane: testenv.Start(t), Name: name, Namespace: "partition-" + name}
	// RouteWebhooks has changed them in a way that cannot be merged with the manifests.
	i.Kubectl(t, "delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--ignore-not-found", "--selector=app.kubernetes.io/name="+name)
	i.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", Base(name))
	return i
}

// AddHosted brings what the companion has in a hosted cluster onto a second control plane, and what a management cluster has
// for that onto the first.
func (i *Installed) AddHosted(t testing.TB) {
	t.Helper()
	i.Hosted = &Installed{ControlPlane: testenv.StartHosted(t), Name: i.Name, Namespace: i.Namespace}
	i.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(Base("sample"), "management.yaml"))
	i.Hosted.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", i.hostedBase())
}

func (i *Installed) hostedBase() string { return filepath.Join(Base(i.Name), "hosted") }

// nodes is the cluster that has the nodes on which the companion acts.
func (i *Installed) nodes() *Installed {
	if i.Hosted != nil {
		return i.Hosted
	}
	return i
}

// User is the ServiceAccount of the controllers, as kube-apiserver calls it.
func (i *Installed) User() string { return i.user(controllersAccount) }

func (i *Installed) user(account string) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", i.Namespace, account)
}

// Webhooks is the URL at which the webhooks of that replica are.
func (i *Installed) Webhooks() string { return fmt.Sprintf("https://127.0.0.1:%d", i.webhooks.webhook) }

// Own returns the URL of the first endpoint of the companion's settings, of the replica that was started last.
func (i *Installed) Own() string { return fmt.Sprintf("https://127.0.0.1:%d", i.webhooks.own[0]) }

// As returns a client with a token.
func (i *Installed) As(t testing.TB, token string) client.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(i.Config)
	config.BearerToken = token
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// imageSetting is the beginning of a line by which make install finds a setting that names an image.
var imageSetting = regexp.MustCompile(`(?m)^  \w+Image: `)

// WithImage returns a file with the configuration of a companion's manifests and an image of what runs on nodes, which make
// install would choose.
func WithImage(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Base(name), "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	text = imageSetting.ReplaceAll(text, []byte("${0}registry.example.com/"))
	// What is a volume in a pod is the directory of the manifests here.
	text = bytes.ReplaceAll(text, []byte("/etc/partition-controller-rules"), []byte(Base(name)))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Configuration is that of the manifests, with times that suit a test.
func (i *Installed) Configuration(t testing.TB) *configv1alpha1.ControllerConfiguration {
	t.Helper()
	config, err := configv1alpha1.Read(WithImage(t, i.Name), i.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates.Names = []string{"127.0.0.1"}
	config.LeaderElection.LeaseDuration.Duration = 6 * time.Second
	config.LeaderElection.RenewDeadline.Duration = 4 * time.Second
	config.LeaderElection.RetryPeriod.Duration = 500 * time.Millisecond
	config.ForeignManagerPeriod.Duration = 300 * time.Millisecond
	if i.Hosted != nil {
		config.HostedConnection.Kubeconfig = i.Hosted.Identity(t, i.Name)
	}
	return config
}

// kubeconfig returns a file for a ServiceAccount, once it has its rights.
func (i *Installed) kubeconfig(t testing.TB, account string) string {
	t.Helper()
	i.awaitRight(t, i.user(account), authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}})
	return i.Identity(t, account)
}

// awaitRight waits until a user may do something: its roles may be newer than what kube-apiserver has of them in memory.
func (i *Installed) awaitRight(t testing.TB, user string, right authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	right.User = user
	testenv.Eventually(t, 10*time.Second, func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: right}
		if err := i.Client.Create(t.Context(), review); err != nil || !review.Status.Allowed {
			return fmt.Errorf("%s has not got its rights: %s %w", user, review.Status.Reason, err)
		}
		return nil
	})
}

// Identity returns a kubeconfig of a ServiceAccount in the companion's namespace.
func (i *Installed) Identity(t testing.TB, account string) string {
	t.Helper()
	return i.KubeconfigOf(t, i.Token(t, i.Namespace, account, nil))
}

// Start starts a replica of both Deployments, each under its ServiceAccount, and returns that of the controllers. The
// change to their configurations may be nil. The next test need not wait for the Lease.
func (i *Installed) Start(t testing.TB, change func(*configv1alpha1.ControllerConfiguration)) *testenv.Process {
	t.Helper()
	t.Cleanup(func() { i.FreeLease(t) }) // after the replica's end
	config := i.Configuration(t)
	if change != nil {
		change(config)
	}
	var controllers *testenv.Process
	controllers, i.controllers = i.start(t, config, configv1alpha1.Controllers, i.kubeconfig(t, controllersAccount))
	if !i.hasWebhooks(t) {
		i.server, i.webhooks = controllers, i.controllers
		return controllers
	}
	if config.Certificates.Source == configv1alpha1.CertificatesGenerated {
		config.Certificates.Directory = i.mountCertificate(t)
	}
	i.server, i.webhooks = i.start(t, config, configv1alpha1.Webhooks, i.kubeconfig(t, webhooksAccount))
	return controllers
}

// hasWebhooks reports whether the manifests have a Deployment of webhooks.
func (i *Installed) hasWebhooks(t testing.TB) bool {
	t.Helper()
	err := i.Client.Get(t.Context(), client.ObjectKey{Namespace: i.Namespace, Name: webhooksAccount}, &corev1.ServiceAccount{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// The ServiceAccounts of the two.
const controllersAccount, webhooksAccount = "partition-controller", "partition-webhooks"

func (i *Installed) start(t testing.TB, config *configv1alpha1.ControllerConfiguration, part configv1alpha1.Part, kubeconfig string) (*testenv.Process, ports) {
	t.Helper()
	config = config.DeepCopy()
	settings := subject.Settings()
	var own []*configv1alpha1.Endpoint
	if settings != nil {
		if err := companion.Configure(subject, config); err != nil {
			t.Fatal(err)
		}
		if server, ok := settings.(companion.Server); ok {
			own = server.Endpoints()
		}
	}
	// Replicas share this host.
	free := listen(t, append([]*configv1alpha1.Endpoint{&config.Webhook, &config.Metrics, &config.Health}, own...)...)
	if settings != nil {
		var err error
		if config.Settings.Raw, err = json.Marshal(settings); err != nil {
			t.Fatal(err)
		}
	}
	config.ClientConnection.Kubeconfig = kubeconfig
	return run(t, config, "--parts="+string(part)), ports{free[0], free[1], free[2], free[3:]}
}

// listen gives each endpoint a free port, and returns the ports.
func listen(t testing.TB, endpoints ...*configv1alpha1.Endpoint) []int {
	t.Helper()
	free, err := testenv.FreePorts(len(endpoints))
	if err != nil {
		t.Fatal(err)
	}
	for n, endpoint := range endpoints {
		endpoint.BindAddress = fmt.Sprintf("127.0.0.1:%d", free[n])
	}
	return free
}

// run starts partition-controller with a configuration.
func run(t testing.TB, config *configv1alpha1.ControllerConfiguration, arguments ...string) *testenv.Process {
	t.Helper()
	data, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return testenv.Run(t, program, append([]string{"--config=" + path, "-v=2"}, arguments...)...)
}

// Run starts a replica of the controllers alone, under their ServiceAccount, for a test binary that has partition-controller among its
// own programs. The configuration's clusters and settings stay as they are.
func (i *Installed) Run(t testing.TB, config *configv1alpha1.ControllerConfiguration) *testenv.Process {
	t.Helper()
	listen(t, &config.Webhook, &config.Metrics, &config.Health)
	config.Parts = []configv1alpha1.Part{configv1alpha1.Controllers}
	config.ClientConnection.Kubeconfig = i.Identity(t, controllersAccount)
	return run(t, config)
}

// mountCertificate plays the kubelet: it returns a directory with what is in the Secret of the certificate, and keeps it
// up to date until the test ends.
func (i *Installed) mountCertificate(t testing.TB) string {
	t.Helper()
	directory := t.TempDir()
	mount := func() error {
		var secret corev1.Secret
		if err := i.Client.Get(context.Background(), client.ObjectKey{Namespace: i.Namespace, Name: "webhook-certificate"}, &secret); err != nil {
			return err
		}
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			path := filepath.Join(directory, key)
			if len(secret.Data[key]) == 0 {
				return fmt.Errorf("the Secret has no %s", key)
			}
			if has, err := os.ReadFile(path); err == nil && bytes.Equal(has, secret.Data[key]) {
				continue
			}
			if err := os.WriteFile(path, secret.Data[key], 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	testenv.Eventually(t, patience, mount)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-time.After(200 * time.Millisecond):
				_ = mount() // the Secret goes when the companion is uninstalled
			}
		}
	}()
	t.Cleanup(func() {
		close(ended)
		<-done
	})
	return directory
}

// FreeLease gives back the Lease of a replica that was killed, where a test is not about waiting for that.
func (i *Installed) FreeLease(t testing.TB) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: "partition-controller"}}
	if err := client.IgnoreNotFound(i.Client.Delete(context.Background(), lease)); err != nil {
		t.Fatal(err)
	}
}

// RouteWebhooks lets kube-apiserver call the replica that was started last: it does not know
// Services here.
func (i *Installed) RouteWebhooks(t testing.TB) {
	t.Helper()
	testenv.Eventually(t, 10*time.Second, func() error {
		var mutating admissionregistrationv1.MutatingWebhookConfigurationList
		var validating admissionregistrationv1.ValidatingWebhookConfigurationList
		for _, list := range []client.ObjectList{&mutating, &validating} {
			if err := i.Client.List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/name": i.Name}); err != nil {
				return err
			}
		}
		for at := range mutating.Items {
			for webhook := range mutating.Items[at].Webhooks {
				i.route(t, &mutating.Items[at].Webhooks[webhook].ClientConfig)
			}
			// It conflicts with the controller that brings CAs there.
			if err := i.Client.Update(t.Context(), &mutating.Items[at]); err != nil {
				return err
			}
		}
		for at := range validating.Items {
			for webhook := range validating.Items[at].Webhooks {
				i.route(t, &validating.Items[at].Webhooks[webhook].ClientConfig)
			}
			if err := i.Client.Update(t.Context(), &validating.Items[at]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (i *Installed) route(t testing.TB, called *admissionregistrationv1.WebhookClientConfig) {
	t.Helper()
	to := url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", i.webhooks.webhook)}
	if called.Service != nil {
		to.Path = *called.Service.Path
	} else {
		before, err := url.Parse(*called.URL)
		if err != nil {
			t.Fatal(err)
		}
		to.Path = before.Path
	}
	text := to.String()
	called.URL, called.Service = &text, nil
}

// remove deletes an object at the end of a test.
func remove(t testing.TB, c client.Client, object client.Object) {
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.Background(), object)); err != nil {
			t.Error(err)
		}
	})
}
