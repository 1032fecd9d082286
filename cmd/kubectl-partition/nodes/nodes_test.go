// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/node/plan"
)

// api is an API server with one node, and a kubelet that shows its configuration.
type api struct {
	node v1.Node
	pods []v1.Pod
	// configz is what the kubelet answers.
	configz string
	// forbidden are parts of paths that the client may not read.
	forbidden []string
	// kubeletForbids means that the kubelet answers 403 to what the API server passes on.
	kubeletForbids bool
	// asked are the paths that the kubelet itself was asked for, and token what it was given.
	asked []string
	token string
}

// live starts the API server and the kubelet.
func (a *api) live(t *testing.T) Reader {
	t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.asked, a.token = append(a.asked, r.URL.Path), r.Header.Get("Authorization")
		fmt.Fprint(w, a.configz)
	}))
	t.Cleanup(kubelet.Close)
	host, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	a.node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: host}}
	a.node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	answer := func(w http.ResponseWriter, code int, object any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, path := range a.forbidden {
			if strings.Contains(r.URL.Path, path) {
				answer(w, http.StatusForbidden, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "forbidden: " + path})
				return
			}
		}
		switch r.URL.Path {
		case "/api/v1/nodes":
			list := v1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
			if r.URL.Query().Get("labelSelector") == "edge=yes" {
				list.Items = append(list.Items, a.node)
			}
			answer(w, http.StatusOK, list)
		case "/api/v1/nodes/worker-1":
			answer(w, http.StatusOK, a.node)
		case "/api/v1/nodes/worker-1/proxy/configz":
			if a.kubeletForbids {
				answer(w, http.StatusForbidden, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "forbidden by the kubelet"})
				return
			}
			fmt.Fprint(w, a.configz)
		case "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
			review := authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}}
			review.Status.Allowed = !slices.Contains(a.forbidden, "/proxy/")
			answer(w, http.StatusCreated, review)
		case "/api/v1/pods":
			if selector := r.URL.Query().Get("fieldSelector"); selector != "spec.nodeName=worker-1" {
				t.Errorf("the pods are those of %q", selector)
			}
			answer(w, http.StatusOK, v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: a.pods})
		case "/apis/resource.k8s.io/v1/resourceslices":
			if selector := r.URL.Query().Get("fieldSelector"); selector != "spec.driver=dra.cpu,spec.nodeName=worker-1" {
				t.Errorf("the ResourceSlices are those of %q", selector)
			}
			cpu := int64(2)
			answer(w, http.StatusOK, resourcev1.ResourceSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSliceList"}, Items: []resourcev1.ResourceSlice{{
				Spec: resourcev1.ResourceSliceSpec{Driver: "dra.cpu", Devices: []resourcev1.Device{{Name: "cpudev002", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"dra.cpu/cpuID": {IntValue: &cpu}}}}},
			}}})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: kubelet.Certificate().Raw})
	config := &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: authority},
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return Reader{Client: client, Config: config}
}

// worker returns a node of four CPUs.
func worker() v1.Node {
	return v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "worker-1"},
		Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}}
}

// shown is the configuration of a running kubelet.
const shown = `{"kubeletconfig": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "1"}}`

func TestNodesComeWithPodsAndConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		forbidden            []string
		wantPods, wantDenied string
		wantOffered          int64
	}{
		"all may be read":                  {wantPods: "a", wantOffered: 1},
		"pods may not be listed":           {forbidden: []string{"/pods"}, wantDenied: "the missing right is list on pods, in all namespaces", wantOffered: 1},
		"ResourceSlices may not be listed": {forbidden: []string{"/resourceslices"}, wantPods: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{node: worker(), configz: shown, pods: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, forbidden: test.forbidden}
			nodes, err := a.live(t).Nodes(t.Context(), []string{"worker-1"}, "")
			if err != nil {
				t.Fatal(err)
			}
			n, pods := nodes[0], ""
			for _, pod := range n.Pods {
				pods += pod.Name
			}
			if pods != test.wantPods || !strings.Contains(n.PodsDenied, test.wantDenied) || (n.PodsDenied != "") != (test.wantDenied != "") {
				t.Errorf("the pods are %q, denied for %q", pods, n.PodsDenied)
			}
			if got := ptr.Deref(n.Offered, plan.Offered{}); got.Count != test.wantOffered || (got.CPUs.String() == "2") != (test.wantOffered > 0) {
				t.Errorf("a DRA driver offers %d CPUs, %s", got.Count, got.CPUs)
			}
			if denied := strings.Contains(n.OfferedDenied, "the missing right is list on resourceslices"); denied != (test.wantOffered == 0) {
				t.Errorf("what a DRA driver offers is denied for %q", n.OfferedDenied)
			}
			if n.Online.Size() != 4 || n.Shown.String() != "1" || !n.InEffect || n.Configuration.CPUManagerPolicy != "static" {
				t.Errorf("the node is %+v", n)
			}
		})
	}
}

// The client's token goes to a kubelet only where the API server does not pass the question on,
// and where the cluster's authority has signed the kubelet's certificate.
func TestKubeletItselfIsAskedOnlyIfItMustBe(t *testing.T) {
	for name, test := range map[string]struct {
		forbidden      []string
		kubeletForbids bool
		change         func(*rest.Config)
		want           string
		wantsAsked     bool
	}{
		"the API server passes it on":                      {},
		"the kubelet forbids what the API server does not": {kubeletForbids: true, want: "get nodes worker-1"},
		"only nodes/configz is allowed":                    {forbidden: []string{"/proxy/"}, wantsAsked: true},
		"the certificate has an unknown issuer":            {forbidden: []string{"/proxy/"}, change: func(c *rest.Config) { c.CAData = nil }, want: "certificate"},
		"the client verifies no certificate":               {forbidden: []string{"/proxy/"}, change: func(c *rest.Config) { c.Insecure, c.CAData = true, nil }, want: "the missing right is get on nodes/configz"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{node: worker(), configz: shown, forbidden: test.forbidden, kubeletForbids: test.kubeletForbids}
			l := a.live(t)
			if test.change != nil {
				test.change(l.Config)
			}
			nodes, err := l.Nodes(t.Context(), nil, "edge=yes")
			if err != nil {
				t.Fatal(err)
			}
			if asked := len(a.asked) > 0; asked != test.wantsAsked || (asked && a.token != "Bearer secret") {
				t.Errorf("the kubelet was asked for %q with %q", a.asked, a.token)
			}
			if got := nodes[0].ConfigurationDenied; !strings.Contains(got, test.want) || (nodes[0].Configuration == nil) != (test.want != "") {
				t.Errorf("the configuration is %v, denied for %q, want %q", nodes[0].Configuration, got, test.want)
			}
		})
	}
}

func TestMissingNodesAndRightsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		names     []string
		selector  string
		forbidden []string
		want      string
	}{
		"no such node":            {names: []string{"worker-2"}, want: "node worker-2"},
		"no node has the labels":  {selector: "edge=no", want: `no node has the labels "edge=no"`},
		"nodes may not be read":   {names: []string{"worker-1"}, forbidden: []string{"/nodes"}, want: "the missing right is get on nodes"},
		"nodes may not be listed": {selector: "edge=yes", forbidden: []string{"/nodes"}, want: "the missing right is list on nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{node: worker(), forbidden: test.forbidden}
			if _, err := a.live(t).Nodes(t.Context(), test.names, test.selector); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
}
