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

package console

import (
	"context"
	"crypto/tls"
	"embed"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"workload.openshift.io/operators/cpupolicy"
)

// Requester asks for a policy on behalf of somebody who may.
type Requester interface {
	// Request writes the request to the Node, once it has been validated as a user's would be.
	// An error that has a Status of the API is shown as that: NotFound, or Conflict with all that
	// stands in the way. It is a Conflict, too, if the same policy is requested already: such a
	// write would change nothing, so that kube-apiserver would ask no webhook.
	Request(ctx context.Context, node string, policy cpupolicy.Policy) error
}

// Options are what the console needs. All fields are required.
type Options struct {
	// Config reaches kube-apiserver. What the console itself reads and writes has a rate of requests of
	// its own; what Requester and Situation ask has theirs.
	Config *rest.Config
	// FieldOwner is in whose name virtual machines are written.
	FieldOwner client.FieldOwner
	// BindAddress is host:port. The value 0 serves nothing.
	BindAddress string
	// TLSOpts choose the certificate.
	TLSOpts []func(*tls.Config)
	// Requester takes requests.
	Requester Requester
	// InForce returns the policy that was observed on a node; empty if nobody has looked. It must
	// not conclude it from a label.
	InForce func(*corev1.Node) cpupolicy.Policy
	// Situation returns what is known of a node when somebody asks for a policy there.
	Situation func(context.Context, *corev1.Node, cpupolicy.Policy) (cpupolicy.Situation, error)
}

// What a request may take. Both are shorter than a pod's time to end.
const (
	readTimeout    = 10 * time.Second
	requestTimeout = 15 * time.Second
)

// maxBody is the size of what may be posted, in bytes: a token, and little else.
const maxBody = 64 << 10

// pageSize is the number of objects on a page, and of those that are in memory at once.
const pageSize = 100

// New returns what serves the console, on every replica. It ends once requests that have begun have
// ended.
func New(options Options) manager.Runnable {
	return &server{Options: options, sessions: newSessions(time.Now), pageSize: pageSize}
}

type server struct {
	Options
	client   client.Client
	sessions *sessions
	pageSize int64
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *server) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *server) Start(ctx context.Context) error {
	if s.BindAddress == "0" {
		return nil
	}
	if err := s.connect(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.BindAddress)
	if err != nil {
		return err
	}
	return s.serve(ctx, listener)
}

// connect makes the client. It caches nothing.
func (s *server) connect() error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, virtv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config := rest.CopyConfig(s.Config)
	config.QPS, config.Burst, config.RateLimiter = 50, 2*pageSize, nil
	c, err := client.New(config, client.Options{Scheme: scheme})
	s.client = client.WithFieldOwner(c, string(s.FieldOwner))
	return err
}

func (s *server) serve(ctx context.Context, listener net.Listener) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, option := range s.TLSOpts {
		option(config)
	}
	logger := klog.FromContext(ctx)
	ending := manager.Server{
		Name:     "console",
		Listener: tls.NewListener(listener, config),
		Server: &http.Server{
			Handler:           s.handler(),
			BaseContext:       func(net.Listener) context.Context { return klog.NewContext(context.Background(), logger) },
			ReadHeaderTimeout: readTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      requestTimeout + readTimeout,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    maxBody,
		},
	}
	return ending.Start(ctx)
}

//go:embed templates style.css
var files embed.FS

// handler serves everything.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	s.addActions(mux)
	s.addPages(mux)
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "style.css")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		// Under no-referrer a browser would hide where a form is from.
		header.Set("Referrer-Policy", "same-origin")
		header.Set("X-Content-Type-Options", "nosniff")
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}
