/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package console opens the console of the companion cpupolicy in a browser of this host: it forwards
// a port to a pod, checks whose certificate is there, and serves a page that signs the browser in. A
// token is in no URL, no file and no command line. The package knows no flags.
package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/cpupolicy"
)

const (
	// deployment is what serves the console, and its Service has the same name.
	deployment = "partition-webhooks"
	// portName is that of the console's port, and port its number where the pod does not say.
	portName = "console"
	port     = 8444
	// patience is how long the console may take to answer.
	patience = 15 * time.Second
)

// Options say which console to open. All but Port are required.
type Options struct {
	Config *rest.Config
	Client kubernetes.Interface
	// Namespace is that of the companion.
	Namespace string
	// Port is where the console is on this host; zero takes a free one.
	Port uint16
	// Token returns what signs the browser in.
	Token TokenSource
}

// Opened is a console that can be used.
type Opened struct {
	// Page is the URL of the page that signs a browser in, and Console that of the console.
	Page, Console string
	Pod           string
	// Fingerprint is the SHA-256 fingerprint of the console's certificate, as browsers show it.
	Fingerprint string
	// port is that of Console.
	port uint16
}

// Events are calls that say what becomes of a console that is open. Each is required.
type Events struct {
	// Opened is called once the console can be used, and again each time that its connection is back.
	Opened func(Opened)
	// Lost is called with the error that has ended a connection.
	Lost func(error)
}

const (
	// retryPeriod is the time between two tries to connect again, and retryLimit that until the last one. A
	// kubelet that starts again ends the connections to its pods; a switch of its policy takes up to 150 seconds.
	retryPeriod = 2 * time.Second
	retryLimit  = 5 * time.Minute
)

// Open opens the console, and serves until the context ends. A connection that ends is made again, for five
// minutes.
func Open(ctx context.Context, o Options, events Events) error {
	// Who gets no token is told before anything is opened. The page gets a new one each time.
	if _, err := o.Token(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	is, lost, err := o.connect(ctx)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	page := newPage(is, o.Token)
	url := "http://" + listener.Addr().String() + page.path
	server := &http.Server{Handler: page, ReadTimeout: patience, WriteTimeout: 2 * patience}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer server.Close()
	for {
		is.Page = url
		events.Opened(is)
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case err := <-lost:
			events.Lost(fmt.Errorf("pod %s/%s: %w", o.Namespace, is.Pod, err))
		}
		o.Port = is.port // the browser knows this one
		limited, end := context.WithTimeout(ctx, retryLimit)
		err := errors.New("no connection was tried")
		for err != nil && limited.Err() == nil {
			select {
			case <-limited.Done():
			case <-time.After(retryPeriod):
				is, lost, err = o.connect(ctx)
			}
		}
		end()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("there is no connection for %s; begin again, and sign in once more: %w", retryLimit, err)
		}
		page.now(is)
	}
}

// connect forwards the port, and checks whose certificate is there. lost gets the error with which that ends.
func (o Options) connect(ctx context.Context) (is Opened, lost <-chan error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	roots, err := o.roots(ctx)
	if err != nil {
		return is, nil, err
	}
	pod, err := o.pod(ctx)
	if err != nil {
		return is, nil, err
	}
	local, broken, err := o.forward(ctx, pod)
	if err != nil {
		return is, nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	certificate, err := o.verify(ctx, local, roots)
	if err != nil {
		return is, nil, fmt.Errorf("pod %s/%s: its console, port %d: %w", pod.Namespace, pod.Name, portOf(pod), err)
	}
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- <-broken
	}()
	return Opened{Console: fmt.Sprintf("https://localhost:%d", local), Pod: pod.Name, Fingerprint: Fingerprint(certificate.Raw), port: local}, ended, nil
}

// roots are the authorities by which kube-apiserver knows the companion's webhooks. The console has
// their certificate.
func (o Options) roots(ctx context.Context) (*x509.CertPool, error) {
	configuration, err := o.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, cpupolicy.Group, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s, which has the CA: %w", cpupolicy.Group, err)
	}
	roots, found := x509.NewCertPool(), false
	for _, webhook := range configuration.Webhooks {
		found = roots.AppendCertsFromPEM(webhook.ClientConfig.CABundle) || found
	}
	if !found {
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s: webhooks[].clientConfig.caBundle: has no certificate; the companion has not begun", cpupolicy.Group)
	}
	return roots, nil
}

// pod returns a ready pod of the Deployment.
func (o Options) pod(ctx context.Context) (*corev1.Pod, error) {
	of, err := o.Client.AppsV1().Deployments(o.Namespace).Get(ctx, deployment, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("deployment %s/%s: %w", o.Namespace, deployment, err)
	}
	pods, err := o.Client.CoreV1().Pods(o.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(of.Spec.Selector)})
	if err != nil {
		return nil, fmt.Errorf("pods of deployment %s/%s: %w", o.Namespace, deployment, err)
	}
	at := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
	if at < 0 {
		return nil, fmt.Errorf("deployment %s/%s: none of its %d pods is ready", o.Namespace, deployment, len(pods.Items))
	}
	return &pods.Items[at], nil
}

func portOf(pod *corev1.Pod) int32 {
	for _, container := range pod.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name == portName {
				return p.ContainerPort
			}
		}
	}
	return port
}

// forward forwards a port of this host to the pod until the context ends, as kubectl port-forward does:
// over a WebSocket, or SPDY where a server or a proxy knows no better. lost gets the error with which
// that ends.
func (o Options) forward(ctx context.Context, pod *corev1.Pod) (local uint16, lost <-chan error, err error) {
	url := o.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, o.Config)
	if err != nil {
		return 0, nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(o.Config)
	if err != nil {
		return 0, nil, err
	}
	dialer := portforward.NewFallbackDialerForStreaming(overWebSocket, spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	ready, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"localhost"}, []string{fmt.Sprintf("%d:%d", o.Port, portOf(pod))}, ready, io.Discard, io.Discard)
	if err != nil {
		return 0, nil, err
	}
	go func() {
		ended <- cmp.Or(forwarder.ForwardPorts(), errors.New("the connection has ended"))
	}()
	select {
	case <-ready:
	case err := <-ended:
		return 0, nil, err
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return 0, nil, err
	}
	return ports[0].Local, ended, nil
}

// verify returns the console's certificate, if it is for the companion's Service and from one of the
// authorities.
func (o Options) verify(ctx context.Context, local uint16, roots *x509.CertPool) (*x509.Certificate, error) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{
		RootCAs: roots, ServerName: fmt.Sprintf("%s.%s.svc", deployment, o.Namespace), MinVersion: tls.VersionTLS12,
	}}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	connection, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("localhost:%d", local))
	if unverified := (*tls.CertificateVerificationError)(nil); errors.As(err, &unverified) {
		return nil, fmt.Errorf("it is not the companion's: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("nobody answers; look whether cpuPolicy.console.bindAddress is \"0\": %w", err)
	}
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// Fingerprint returns the SHA-256 fingerprint of a certificate in DER, as browsers show it.
func Fingerprint(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
}
