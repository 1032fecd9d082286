// SPDX-License-Identifier: Apache-2.0

// Package console shows the companion cpupolicy in a browser of this host: nodes and their CPU manager
// policy, and the virtual machines that can have CPUs of their own. As kubectl proxy does, it listens on
// loopback and sends each request with the credentials of its user, so RBAC, admission and audit of
// kube-apiserver see that user. It has no rights, no token and no cookie of its own. It knows no flags.
package console

import (
	"context"
	"crypto/rand"
	"embed"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"workload.openshift.io/operators/cpupolicy/policyclient"
)

// Options say what to show. All but Port are required.
type Options struct {
	// Config has the cluster, and the user's credentials.
	Config *rest.Config
	// Namespace is that of the companion.
	Namespace string
	// Port is where the console is on this host; zero takes a free one.
	Port uint16
	// Opened is called once the console can be used.
	Opened func(Opened)
}

// Opened is a console that can be used.
type Opened struct {
	// URL is that of its first page. Anyone who has it has the rights of the user here.
	URL string
	// User is the user's name to kube-apiserver.
	User string
}

const (
	// requestTimeout is how long a page may take, with all that it asks of kube-apiserver, and
	// readTimeout how long a browser may take to ask for it.
	requestTimeout = 30 * time.Second
	readTimeout    = 10 * time.Second
	// maxBody is the size of a form, in bytes.
	maxBody = 64 << 10
	// pageSize is the number of objects on a page.
	pageSize = 100
)

// Open serves the console until the context ends.
func Open(ctx context.Context, o Options) error {
	s := &server{cluster: o.Config.Host, pageSize: pageSize}
	config := rest.CopyConfig(o.Config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, warnings{}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	s.client = policyclient.Client{Kube: kube, Namespace: o.Namespace}
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	// This also tells at once if the cluster does not know the user.
	review, err := kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking kube-apiserver which user this is: %w", err)
	}
	s.user = review.Status.UserInfo.Username
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.Port))
	if err != nil {
		return err
	}
	handler, path := s.handler(listener.Addr().String())
	served := &http.Server{
		Handler: handler, ReadTimeout: readTimeout, WriteTimeout: requestTimeout + readTimeout, MaxHeaderBytes: maxBody,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { served.Close() })()
	o.Opened(Opened{URL: "http://" + listener.Addr().String() + path + "hosts", User: s.user})
	if err := served.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// server has one user.
type server struct {
	client  policyclient.Client
	dynamic dynamic.Interface
	// user and cluster are shown on each page.
	user, cluster string
	pageSize      int64

	mu sync.Mutex
	// failure is what became of the last request, until the next one; nil if it went well.
	failure *alert
}

//go:embed templates style.css
var files embed.FS

// handler serves the pages of a host, which has an address and a port, below the path that it returns.
// Other users of this host can connect as well, and nobody of them guesses the path.
func (s *server) handler(host string) (handler http.Handler, path string) {
	path = "/" + rand.Text() + "/"
	mux := http.NewServeMux()
	s.addPages(mux, path)
	mux.HandleFunc("GET "+path+"style.css", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "style.css")
	})
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		// The path is nobody else's business. Under no-referrer a browser would hide where a form is from.
		header.Set("Referrer-Policy", "same-origin")
		header.Set("X-Content-Type-Options", "nosniff")
		if r.Host != host { // a name of somebody else's that now has the address of this host
			http.Error(w, fmt.Sprintf("the host %q is not %s, where kubectl partition console is", r.Host, host), http.StatusMisdirectedRequest)
			return
		}
		if err := crossOrigin.Check(r); err != nil {
			http.Error(w, "nothing was done: "+err.Error(), http.StatusForbidden)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r.WithContext(ctx))
	}), path
}

// warnings collects what kube-apiserver warns of, for the page that has asked.
type warnings struct{}

type warningsKey struct{}

// collectWarnings returns a context for requests, and where their warnings go.
func collectWarnings(ctx context.Context) (context.Context, *[]string) {
	texts := &[]string{}
	return context.WithValue(ctx, warningsKey{}, texts), texts
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	const warning = 299 // RFC 7234, 5.5.7
	if texts, ok := ctx.Value(warningsKey{}).(*[]string); ok && code == warning {
		*texts = append(*texts, text)
	}
}
