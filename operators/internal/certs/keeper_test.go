// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, nil) }

// configuration has a Secret of its own for each test, and the webhook configuration of the same
// name.
func configuration(t *testing.T, c *testenv.ControlPlane, name string, durations ...time.Duration) *configv1alpha1.ControllerConfiguration {
	t.Helper()
	config := &configv1alpha1.ControllerConfiguration{Namespace: "default"}
	config.Certificates = configv1alpha1.CertificatesConfiguration{
		SecretName:                     name,
		Names:                          []string{"127.0.0.1"},
		ValidatingWebhookConfiguration: name,
	}
	for i, field := range []*metav1.Duration{&config.Certificates.Validity, &config.Certificates.RenewBefore, &config.Certificates.Overlap} {
		if i < len(durations) {
			field.Duration = durations[i]
		}
	}
	configv1alpha1.SetDefaults(config)
	if errs := configv1alpha1.Validate(config); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := c.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Client.Delete(context.Background(), secret) })
	return config
}

// replica is a process with a webhook that allows everything.
type replica struct {
	keeper *Keeper
	url    string
	// calls counts those of kube-apiserver.
	calls atomic.Int64
	manager.Manager
}

// newReplica starts one, which sees each change of an object so much later.
func newReplica(t *testing.T, c *testenv.ControlPlane, config *configv1alpha1.ControllerConfiguration, lag time.Duration) *replica {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	r := &replica{keeper: New(config), url: fmt.Sprintf("https://127.0.0.1:%d/", port)}
	if err := r.keeper.Load(t.Context(), c.Client); err != nil {
		t.Fatal(err)
	}
	r.Manager, err = manager.New(c.Config, manager.Options{
		Scheme:  testenv.Scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			ByObject:                    r.keeper.Cache(),
			ReaderFailOnMissingInformer: true,
			DefaultTransform: func(object any) (any, error) {
				time.Sleep(lag)
				return object, nil
			},
		},
		Controller: controllerconfig.Controller{SkipNameValidation: ptr.To(true)},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, TLSOpts: []func(*tls.Config){func(config *tls.Config) {
			config.GetCertificate = r.keeper.GetCertificate
			config.NextProtos = []string{"http/1.1"}
		}}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	allow := &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})}
	r.GetWebhookServer().Register("/", http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		// So that each request looks at the certificate again.
		w.Header().Set("Connection", "close")
		r.calls.Add(1)
		allow.ServeHTTP(w, request)
	}))
	if err := r.keeper.AddToManager(r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// webhooks returns a configuration that calls these replicas for each ConfigMap of the namespace
// default that has a label. A request that one of them cannot answer is refused.
func webhooks(name string, replicas ...*replica) *admissionregistrationv1.ValidatingWebhookConfiguration {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i, replica := range replicas {
		configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name:                    fmt.Sprintf("replica%d.%s.example.com", i, name),
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			TimeoutSeconds:          ptr.To[int32](10),
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &replica.url},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"test": name}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		})
	}
	return configuration
}

// awaitCalls waits until kube-apiserver calls these replicas. Before it knows a webhook configuration it
// calls nobody, and allows what they have not seen.
func awaitCalls(t *testing.T, c *testenv.ControlPlane, name string, replicas ...*replica) {
	t.Helper()
	testenv.Eventually(t, 20*time.Second, func() error {
		var errs []error
		for i, replica := range replicas {
			errs = append(errs, replica.keeper.Ready(nil))
			before := replica.calls.Load()
			errs = append(errs, request(t.Context(), c, name))
			if replica.calls.Load() == before {
				errs = append(errs, fmt.Errorf("replica %d was not called", i))
			}
		}
		return errors.Join(errs...)
	})
}

// request makes kube-apiserver call the webhooks.
func request(ctx context.Context, c *testenv.ControlPlane, name string) error {
	return c.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "request-", Namespace: "default", Labels: map[string]string{"test": name},
	}}, client.DryRunAll)
}

func TestNoRequestIsRefusedWhileCertificatesAreRenewed(t *testing.T) {
	c := testenv.Start(t)
	const name = "renewed"
	config := configuration(t, c, name, 20*time.Second, 11*time.Second, 3*time.Second)
	first, second := newReplica(t, c, config, 0), newReplica(t, c, config, time.Second)
	configured := webhooks(name, first, second)
	if err := c.Client.Create(t.Context(), configured); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Client.Delete(context.Background(), configured) })
	awaitCalls(t, c, name, first, second)

	var (
		requests atomic.Int64
		clients  sync.WaitGroup
		stop     = make(chan struct{})
	)
	for range 3 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := request(t.Context(), c, name); err != nil {
					t.Errorf("after %d requests: %v", requests.Load(), err)
					return
				}
				requests.Add(1)
			}
		})
	}
	served, trusted := map[string]bool{}, map[int]bool{}
	testenv.Eventually(t, time.Minute, func() error {
		var secret corev1.Secret
		if err := c.Client.Get(t.Context(), first.keeper.secret, &secret); err != nil {
			t.Fatal(err)
		}
		served[string(secret.Data[certKey])] = true
		trusted[bytes.Count(secret.Data[bundleKey], []byte("BEGIN"))] = true
		if len(served) < 3 {
			return fmt.Errorf("%d certificates were served", len(served))
		}
		return nil
	})
	close(stop)
	clients.Wait()
	t.Logf("%d requests, %d certificates, with %v CAs at a time", requests.Load(), len(served), trusted)
	if !trusted[1] || !trusted[2] || len(trusted) != 2 {
		t.Errorf("there were %v CAs at a time, want 1 and 2", trusted)
	}
	if requests.Load() < 100 {
		t.Errorf("there were only %d requests", requests.Load())
	}
}

func TestReplicasThatStartAtOnceShareACertificate(t *testing.T) {
	c := testenv.Start(t)
	config := configuration(t, c, "shared")
	keepers := make([]*Keeper, 5)
	var starting sync.WaitGroup
	for i := range keepers {
		keepers[i] = New(config)
		starting.Go(func() {
			if err := keepers[i].Load(t.Context(), c.Client); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	for i, keeper := range keepers {
		if !bytes.Equal(keeper.served.Load().certPEM, keepers[0].served.Load().certPEM) {
			t.Errorf("replica %d serves another certificate than replica 0", i)
		}
	}
}

func TestWhatSomebodyRemovedComesBack(t *testing.T) {
	c := testenv.Start(t)
	const name = "removed"
	replica := newReplica(t, c, configuration(t, c, name), 0)
	testenv.Eventually(t, 10*time.Second, func() error {
		if err := replica.keeper.Ready(nil); err == nil || !strings.Contains(err.Error(), "ValidatingWebhookConfiguration "+name) {
			return fmt.Errorf("without a webhook configuration it is ready, or does not say why not: %w", errors.Join(err))
		}
		return nil
	})
	configured := webhooks(name, replica)
	if err := c.Client.Create(t.Context(), configured); err != nil {
		t.Fatal(err)
	}
	awaitCalls(t, c, name, replica)

	t.Run("the CAs of the webhook configuration", func(t *testing.T) {
		if err := c.Client.Delete(t.Context(), configured); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, 20*time.Second, func() error {
			before := replica.calls.Load()
			if err := request(t.Context(), c, name); err != nil {
				return err
			}
			if replica.calls.Load() != before {
				return errors.New("kube-apiserver still knows the webhook")
			}
			return nil
		})
		configured = webhooks(name, replica)
		if err := c.Client.Create(t.Context(), configured); err != nil {
			t.Fatal(err)
		}
		awaitCalls(t, c, name, replica)
	})
	t.Run("the content of the Secret, and no request is refused", func(t *testing.T) {
		var secret corev1.Secret
		if err := c.Client.Get(t.Context(), replica.keeper.secret, &secret); err != nil {
			t.Fatal(err)
		}
		before := secret.Data[certKey]
		secret.Data = nil
		if err := c.Client.Update(t.Context(), &secret); err != nil {
			t.Fatal(err)
		}
		testenv.Always(t, 2*time.Second, func() error {
			return errors.Join(replica.keeper.Ready(nil), request(t.Context(), c, name))
		})
		if err := c.Client.Get(t.Context(), replica.keeper.secret, &secret); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(secret.Data[certKey], before) {
			t.Error("the certificate is another one")
		}
	})
	if err := c.Client.Delete(t.Context(), configured); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutItsSecretAReplicaDoesNotStart(t *testing.T) {
	c := testenv.Start(t)
	config := configuration(t, c, "there")
	config.Certificates.SecretName = "not-there"
	err := New(config).Load(t.Context(), c.Client)
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "not-there") {
		t.Errorf("the error is %v", err)
	}
}
