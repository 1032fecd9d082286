// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/node/audit"
)

var (
	coreV1 = corev1.SchemeGroupVersion
	codecs = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
)

// Limits for any client that can reach the address: connections at the same time, and
// bytes of headers for each, in which the largest tokens fit.
const (
	maxConnections = 64
	maxHeader      = 32 << 10
)

// runServe exports metrics. At a loopback address it serves plain HTTP to every user of the host.
// At any other it serves HTTPS, and asks kube-apiserver who a client is, and whether it may get
// the path, as kube-rbac-proxy and controller-runtime do.
func (f *auditOptions) runServe(ctx context.Context) error {
	address, _, err := net.SplitHostPort(f.serve)
	if err != nil {
		return fmt.Errorf("--serve %q is not an address such as 127.0.0.1:9808 or :9808: %w", f.serve, err)
	}
	exporter := audit.NewExporter(f.options)
	registry := prometheus.NewRegistry()
	if err := registry.Register(exporter); err != nil {
		return err
	}
	handler := http.NewServeMux()
	handler.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	handler.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader}
	listener, err := net.Listen("tcp", f.serve)
	if err != nil {
		return err
	}
	defer listener.Close()
	listener = netutil.LimitListener(listener, maxConnections)
	if ip := net.ParseIP(address); address != "localhost" && (ip == nil || !ip.IsLoopback()) {
		config, err := f.config.ToRESTConfig()
		if err != nil {
			return fmt.Errorf("--serve %s is not a loopback address, so clients must be authenticated: %w", f.serve, err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		if server.Handler, err = authenticated(client, handler); err != nil {
			return err
		}
		if listener, err = f.withTLS(ctx, listener, address); err != nil {
			return err
		}
	}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	go func() {
		_ = exporter.Run(ctx, f.interval, func(err error) {
			fmt.Fprintln(f.streams.ErrOut, "cannot audit the node:", output.Printable(err.Error()))
		})
	}()
	fmt.Fprintf(f.streams.ErrOut, "serving metrics at %s\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// withTLS makes a listener speak TLS, with the given certificate or a self-signed one. A given one
// is read again when its files change, until the context ends.
func (f *auditOptions) withTLS(ctx context.Context, listener net.Listener, address string) (net.Listener, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.tlsCertificate == "" {
		certificatePEM, keyPEM, err := cert.GenerateSelfSignedCertKey(cmp.Or(address, "localhost"), nil, nil)
		if err != nil {
			return nil, err
		}
		certificate, err := tls.X509KeyPair(certificatePEM, keyPEM)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
		return tls.NewListener(listener, config), nil
	}
	files, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", f.tlsCertificate, f.tlsKey)
	if err != nil {
		return nil, err
	}
	go files.Run(ctx, 1)
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, err := tls.X509KeyPair(files.CurrentCertKeyContent())
		return &certificate, err
	}
	return tls.NewListener(listener, config), nil
}

// authenticated lets those through who have a token and may get the path; /healthz is for all.
func authenticated(client kubernetes.Interface, next http.Handler) (http.Handler, error) {
	backoff := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	authenticator, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: 10 * time.Second, WebhookRetryBackoff: backoff, CacheTTL: time.Minute,
	}.New()
	if err != nil {
		return nil, err
	}
	authorizing, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: 5 * time.Minute, DenyCacheTTL: 30 * time.Second, WebhookRetryBackoff: backoff,
	}.New()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			next.ServeHTTP(w, r)
			return
		}
		who, ok, err := authenticator.AuthenticateRequest(r)
		if err != nil || !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		decision, _, err := authorizing.Authorize(r.Context(), authorizer.AttributesRecord{User: who.User, Verb: "get", Path: r.URL.Path})
		switch {
		case err != nil:
			http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		case decision != authorizer.DecisionAllow:
			http.Error(w, "Forbidden", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	}), nil
}
