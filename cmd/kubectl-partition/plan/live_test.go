// SPDX-License-Identifier: Apache-2.0

package plan

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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
func (a *api) live(t *testing.T) Live {
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
	return Live{Client: client, Config: config}
}

// worker returns a node of four CPUs, with the cores of some types.
func worker(types ...string) v1.Node {
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("110")}
	for _, workloadType := range types {
		capacity[v1.ResourceName(workloadType+".workload.openshift.io/cores")] = resource.MustParse("4000")
	}
	allocatable := capacity.DeepCopy()
	allocatable[v1.ResourceCPU] = resource.MustParse("3")
	return v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "worker-1"},
		Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.37.0+wp.1234567"}, Capacity: capacity, Allocatable: allocatable}}
}

const (
	// shown are the configurations of running kubelets: without a pool, and with the pool 0.
	shownWithout = `{"kubeletconfig": {"cpuManagerPolicy": "none", "kubeReserved": {"cpu": "1"}}}`
	shownWith    = `{"kubeletconfig": {"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}, "reservedSystemCPUs": "0", "kubeReserved": {"cpu": "500m"}}}`
)

func TestLivePlanSaysWhatStaysUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		api
		present, wanted string
		// counted means that it is unknown which CPUs the node has.
		counted           bool
		verdict           Verdict
		actions, problems []string
		wantText          string
	}{
		"a node without a file": {api: api{node: worker(), configz: shownWithout, pods: []v1.Pod{pod("a", "100m")}}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods 0-3>1-3 n/a", "Report " + cores + " >4000"}},
		"a pod falls out": {api: api{node: worker(), configz: shownWithout, pods: []v1.Pod{pod("a", "2500m")}}, wanted: "0-1", verdict: Unsafe,
			actions: []string{"Move ordinary pods 0-3>2-3 n/a", "Report " + cores + " >4000"}, problems: []string{"Error PodFallsOut n/a"}},
		"the present pools are not known": {api: api{node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "100m")}}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods >1-3 n/a"}, problems: []string{"Info PresentPoolsUnknown"}},
		"it depends on what is configured": {api: api{node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "3")}}, wanted: "1", verdict: Unknown,
			problems: []string{"Info PresentPoolsUnknown", "Unknown PodFallsOut n/a", "Unknown ReservedCPUsUnknown"}, actions: []string{"Move ordinary pods >2-3 n/a"}, wantText: `after the change "0-1" are reserved, or "1"`},
		"it does not depend on it": {api: api{node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "1")}}, wanted: "1", verdict: Safe,
			problems: []string{"Info PresentPoolsUnknown", "Info ReservedCPUsUnknown"}, actions: []string{"Move ordinary pods >2-3 n/a"}},
		"a container may hold exclusive CPUs": {api: api{node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("e", "1", guaranteed)}}, wanted: "0-1", verdict: Unknown,
			problems: []string{"Info PresentPoolsUnknown", "Unknown ExclusiveCPUsUnknown"}, wantText: "These pods may hold some that the change takes, and would keep the kubelet from starting: n/e"},
		"no container loses what the present pool has": {api: api{node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("e", "1", guaranteed)}}, present: "0", wanted: "0", verdict: Safe},
		"the file goes, and with it what the pool has brought": {api: api{node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "100m")}}, present: "0", wanted: "-", verdict: Safe,
			actions: []string{"Free ordinary pods 1-3>0-3 n/a", "Report " + cores + " 4000>"}, problems: []string{"Info ReservedCPUsUnknown", "Warning PinningFileMissing"}, wantText: "nor whether strict-cpu-reservation and reserved cgroups are"},
		"a kubelet that is not patched": {api: api{node: func() v1.Node { n := worker(); n.Status.NodeInfo.KubeletVersion = "v1.37.0"; return n }(), configz: shownWithout}, wanted: "0", verdict: Safe,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Warning KubeletUnpatched"}, wantText: `the kubelet's version is "v1.37.0"`},
		"a CPU that the host may lack": {api: api{node: worker(), configz: shownWithout}, wanted: "7", counted: true, verdict: Unknown,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Unknown OnlineCPUsUnknown"}, wantText: "the node has 4 CPUs, and the API does not say which: the kubelet does not start if the host has no CPU 7"},
		"a CPU that the host lacks, if others are numbered higher": {api: api{node: worker(), configz: shownWithout}, wanted: "1", counted: true, verdict: Unknown,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Unknown OnlineCPUsUnknown"}, wantText: "the kubelet does not start if the host has no CPU 1"},
		"CPUs that the kubelet reserves": {api: api{node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "100m")}}, wanted: "0", counted: true, verdict: Safe,
			actions: []string{"Move ordinary pods >1-3 n/a"}, problems: []string{"Info PresentPoolsUnknown"}},
		"a Node with no cores left": {api: api{node: func() v1.Node {
			n := worker("management")
			n.Status.Capacity[cores], n.Status.NodeInfo.KubeletVersion = resource.MustParse("0"), "v1.37.0"
			return n
		}(), configz: shownWithout}, wanted: "0", verdict: Safe,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Warning KubeletUnpatched"}},
		"the configuration is forbidden, and the kubelet shows it": {api: api{node: worker(), configz: shownWithout, forbidden: []string{"/proxy/"}}, wanted: "0", verdict: Safe, actions: []string{"Report " + cores + " >4000"}},
		"the configuration is forbidden": {api: api{node: worker(), configz: "none of your business", forbidden: []string{"/proxy/"}, pods: []v1.Pod{pod("a", "100m")}}, wanted: "0", verdict: Unknown,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Unknown KubeletConfigurationUnknown"}, wantText: "configz"},
		"the pods are forbidden": {api: api{node: worker(), configz: shownWithout, forbidden: []string{"/pods"}}, wanted: "0-1", verdict: Unknown,
			actions: []string{"Move ordinary pods 0-3>2-3", "Move pods of type management 0-3>0-1", "Report " + cores + " >4000"}, problems: []string{"Unknown PodsUnknown"}, wantText: "the missing right is list on pods, in all namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes, err := test.live(t).Nodes(t.Context(), []string{"worker-1"}, "")
			if err != nil {
				t.Fatal(err)
			}
			nodes[0].OnlineCounted = nodes[0].OnlineCounted && test.counted
			if test.present != "" {
				nodes[0].Present = pool(test.present)
			}
			p := nodes[0].Plan(pool(test.wanted))
			expect(t, p, test.verdict, test.actions, test.problems)
			found := test.wantText == ""
			for _, problem := range p.Problems {
				found = found || strings.Contains(problem.Text, test.wantText)
			}
			if !found {
				t.Errorf("no problem has the text %q: %+v", test.wantText, p.Problems)
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
			a := &api{node: worker(), configz: shownWithout, forbidden: test.forbidden, kubeletForbids: test.kubeletForbids}
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
