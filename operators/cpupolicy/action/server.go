// SPDX-License-Identifier: Apache-2.0

// Package action lets tools ask for the CPU manager policy of a node over HTTP, by the two actions that
// tools of Harvester know. What is written, is written in the name of who asks: kube-apiserver reviews
// the token, for the audience [Audience], and the access, and then sees that user in RBAC, admission
// and audit.
//
// It knows no rule of a switch, and not what becomes of a request.
package action

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options are what the actions need. All fields are required.
type Options struct {
	// Config reaches kube-apiserver. The actions have a rate of requests of their own.
	Config *rest.Config
	// Namespaces have ServiceAccounts of the companion, for whom nothing is done.
	Namespaces []string
	// BindAddress is host:port. The value 0 serves nothing.
	BindAddress string
	// TLSOpts choose the certificate.
	TLSOpts []func(*tls.Config)
	// Recorder writes Events of Nodes.
	Recorder events.EventRecorder
}

// What a request may take. Both are shorter than a pod's time to end.
const (
	readTimeout    = 10 * time.Second
	requestTimeout = 15 * time.Second
)

// maxHeader is the size of a request, in bytes: a token, and little else. A body is not read.
const maxHeader = 64 << 10

// New returns what serves the actions, on every replica. It ends once requests that have begun have
// ended.
func New(options Options) manager.Runnable { return &server{Options: options} }

type server struct {
	Options
	// kube is the companion's own, and http its transport.
	kube kubernetes.Interface
	http *http.Client
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *server) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *server) Start(ctx context.Context) (err error) {
	if s.BindAddress == "0" {
		return nil
	}
	s.Config = rest.CopyConfig(s.Config)
	s.Config.QPS, s.Config.Burst, s.Config.RateLimiter = 50, 100, nil
	if s.http, err = rest.HTTPClientFor(s.Config); err != nil {
		return err
	}
	if s.kube, err = kubernetes.NewForConfigAndClient(s.Config, s.http); err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, option := range s.TLSOpts {
		option(config)
	}
	listener, err := tls.Listen("tcp", s.BindAddress, config)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	ending := manager.Server{
		Name:     "actions",
		Listener: listener,
		Server: &http.Server{
			Handler:           s,
			BaseContext:       func(net.Listener) context.Context { return klog.NewContext(context.Background(), logger) },
			ReadHeaderTimeout: readTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      requestTimeout + readTimeout,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    maxHeader,
		},
	}
	return ending.Start(ctx)
}
