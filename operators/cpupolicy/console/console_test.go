// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/policyclient"
)

// newServer returns a console for a cluster that has the companion and these objects.
func newServer(objects ...runtime.Object) (*server, *fake.Clientset) {
	var vms []runtime.Object
	known := []runtime.Object{&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: policyclient.Group}}}
	for _, object := range objects {
		if vm, ok := object.(*unstructured.Unstructured); ok {
			vms = append(vms, vm)
		} else {
			known = append(known, object)
		}
	}
	kube := fake.NewClientset(known...)
	kube.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		dry := len(action.(clienttesting.PatchActionImpl).PatchOptions.DryRun) > 0 // a fake writes nevertheless
		return dry, &corev1.Node{}, nil
	})
	kube.Resources = []*metav1.APIResourceList{{GroupVersion: policyclient.Group + "/v1alpha1"}}
	return &server{
		client:  policyclient.Client{Kube: kube, Namespace: policyclient.Namespace},
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{vmResource: "VirtualMachineList"}, vms...),
		user:    "anna", cluster: "https://cluster.example.com", pageSize: 100,
	}, kube
}

// node has a label cpumanager, an observed policy and a status; empty is none.
func node(name, label, observed, status string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	if label != "" {
		node.Labels[cpupolicy.Label] = label
	}
	if observed != "" {
		node.Annotations[nodestatus.ObservedAnnotation] = fmt.Sprintf(`{"policy":%q,"at":"2026-11-23T10:00:00Z"}`, observed)
	}
	if status != "" {
		node.Annotations[nodestatus.StatusAnnotation] = status
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

// written are the requests that would have changed something; those of dry runs are not among them.
func written(kube *fake.Clientset) (written []string) {
	for _, action := range kube.Actions() {
		patch, ok := action.(clienttesting.PatchActionImpl)
		if ok && len(patch.PatchOptions.DryRun) == 0 {
			written = append(written, patch.Name+" "+string(patch.Patch))
		}
	}
	return written
}

func TestOnlyWhoHasTheURLIsAnswered(t *testing.T) {
	s, kube := newServer(node("n1", "false", "none", ""))
	b := serve(t, s)
	at, err := url.Parse(b.base)
	if err != nil {
		t.Fatal(err)
	}
	root := "http://" + at.Host
	form := url.Values{"name": {"n1"}, "policy": {"static"}}.Encode()
	own := map[string]string{"Origin": root, "Sec-Fetch-Site": "same-origin"}
	for name, test := range map[string]struct {
		method, url string
		headers     map[string]string
		code        int
	}{
		"the first page":                          {"GET", b.base + "hosts", nil, 200},
		"the style sheet":                         {"GET", b.base + "style.css", nil, 200},
		"the path without its secret":             {"GET", root + "/hosts", nil, 404},
		"a secret that is wrong":                  {"GET", root + "/AAAAAAAAAAAAAAAAAAAAAAAAAA/hosts", nil, 404},
		"the beginning of the secret":             {"GET", strings.TrimSuffix(b.base, at.Path[20:]) + "/hosts", nil, 404},
		"nothing":                                 {"GET", root + "/", nil, 404},
		"a name that was rebound to this host":    {"GET", b.base + "hosts", map[string]string{"Host": "attacker.example.com:" + at.Port()}, 421},
		"localhost by its name":                   {"GET", b.base + "hosts", map[string]string{"Host": "localhost:" + at.Port()}, 421},
		"another port":                            {"GET", b.base + "hosts", map[string]string{"Host": at.Hostname() + ":1"}, 421},
		"a form of a page here":                   {"POST", b.base + "host", own, 200},
		"a form, by a program":                    {"POST", b.base + "host", nil, 200},
		"a form of another site":                  {"POST", b.base + "host", map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://example.com"}, 403},
		"a form of another port of this host":     {"POST", b.base + "host", map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"}, 403},
		"a form of another port, by an old one":   {"POST", b.base + "host", map[string]string{"Origin": "http://127.0.0.1:1"}, 403},
		"a form that does not say where it is of": {"POST", b.base + "host", map[string]string{"Origin": "null"}, 403},
		"a form with a name that was rebound":     {"POST", b.base + "host", map[string]string{"Host": "attacker.example.com"}, 421},
		"a form without the secret":               {"POST", root + "/host", own, 404},
		"a link that would write":                 {"GET", b.base + "host?" + form, nil, 200},
		"another method":                          {"PUT", b.base + "host", own, 405},
	} {
		t.Run(name, func(t *testing.T) {
			kube.ClearActions()
			response, body := b.do(test.method, test.url, form, test.headers)
			if response.StatusCode != test.code {
				t.Errorf("the answer is %d, want %d: %s", response.StatusCode, test.code, body)
			}
			if wants := test.method == "POST" && test.code == 200; (len(written(kube)) > 0) != wants {
				t.Errorf("it has written %q", written(kube))
			}
			if test.code == 404 || test.code == 421 {
				if strings.Contains(string(body), at.Path) || len(kube.Actions()) > 0 {
					t.Errorf("the answer is %s, after %v", body, kube.Actions())
				}
			}
			if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node("n1", "false", "none", ""), ""); err != nil {
				t.Fatal(err)
			}
		})
	}
	if len(at.Path) < 26 {
		t.Errorf("the path is %s", at.Path)
	}
}

// Harvester's page of hosts (its enhancement CPU Pinning, section Web UI): a label decides what can be done, and a failure shows.
func TestWhatAHostShows(t *testing.T) {
	for name, test := range map[string]struct {
		label, observed, status string
		// attribute, request and button are what the page says, and why the button cannot be pressed.
		attribute, request, button, why string
		// alert and under are what has failed, and what is under way.
		alert, under string
	}{
		"not static":         {"false", "", "", "false", "none yet", "Enable CPU Manager", "", "", ""},
		"static":             {"true", "", "", "true", "none yet", "Disable CPU Manager", "", "", ""},
		"complete":           {"true", "static", `{"status":"complete","policy":"static","id":"1"}`, "true", "static: complete", "Disable CPU Manager", "", "", ""},
		"requested":          {"false", "none", `{"status":"requested","policy":"static"}`, "false", "static: requested", "Enable CPU Manager", "The policy static is requested.", "", "The policy static is requested."},
		"running":            {"true", "static", `{"status":"running","policy":"none","id":"1"}`, "true", "none: running", "Disable CPU Manager", "The policy none is running.", "", "The policy none is running."},
		"enable has failed":  {"false", "none", `{"status":"failed","policy":"static","message":"the kubelet ended 3 times"}`, "false", "static: failed", "Enable CPU Manager", "", "Enable CPU Manager has failed on NODE the kubelet ended 3 times", ""},
		"disable has failed": {"true", "static", `{"status":"failed","policy":"none"}`, "true", "none: failed", "Disable CPU Manager", "", "Disable CPU Manager has failed on NODE The node gave no reason.", ""},
		"no label":           {"", "", "", "unknown", "none yet", "", "The node has no label cpumanager yet", "", ""},
		"no label, static":   {"", "static", "", "unknown", "none yet", "Disable CPU Manager", "", "", ""},
		"no label, none":     {"", "none", "", "unknown", "none yet", "Enable CPU Manager", "", "", ""},
		"a label that lies":  {"false", "static", "", "false", "none yet", "Enable CPU Manager", "", "", ""},
		"no JSON":            {"true", "", "no", "true", "annotation " + nodestatus.StatusAnnotation, "Disable CPU Manager", "", "", ""},
		"a message of HTML":  {"false", "none", `{"status":"failed","policy":"static","message":"<script>alert(1)</script>"}`, "false", "static: failed", "Enable CPU Manager", "", "<script>alert(1)</script>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			const nodeName = "<b>n1</b>&name=other"
			s, _ := newServer(node(nodeName, test.label, test.observed, test.status))
			b := serve(t, s)
			for _, link := range []string{"hosts", "host?" + url.Values{"name": {nodeName}}.Encode()} {
				if b.open(link); b.code != http.StatusOK {
					t.Fatalf("%s is answered with %d: %s", link, b.code, text(b.page))
				}
				label, why := b.button(nodeName)
				if want := test.button; want != "" {
					want += " on " + nodeName
					if label != want || why != test.why {
						t.Errorf("%s: the button is %q, want %q, and cannot be pressed because of %q, want %q", link, label, want, why, test.why)
					}
				} else if label != "" || !strings.Contains(text(b.page), test.why) {
					t.Errorf("%s: the button is %q: %s", link, label, text(b.page))
				}
				wantAlert := strings.ReplaceAll(test.alert, "NODE", nodeName)
				if (b.alerts() != "") != (wantAlert != "") || !strings.Contains(b.alerts(), wantAlert) {
					t.Errorf("%s: the alerts are %q, want %q", link, b.alerts(), wantAlert)
				}
				title := text(all(b.page, func(n *html.Node) bool { return n.Data == "title" })[0])
				if strings.HasPrefix(title, "Error: ") != (wantAlert != "") {
					t.Errorf("%s: the title is %q", link, title)
				}
				if status := b.status(); (status != "") != (test.under != "") || !strings.Contains(status, test.under) {
					t.Errorf("%s: the status is %q, want %q", link, status, test.under)
				}
				if !strings.Contains(text(b.page), "anna at https://cluster.example.com") {
					t.Errorf("%s does not say who asks which cluster: %s", link, text(b.page))
				}
			}
			if terms := b.terms(); terms["cpumanager"] != test.attribute || terms["Ready"] != "yes" || terms["Policy in force"] != cmp.Or(test.observed, "unknown") {
				t.Errorf("the detail is %v", terms)
			}
			b.open("hosts")
			cells := b.cells(nodeName)
			if len(cells) != 6 || cells[1] != "yes" || cells[2] != cmp.Or(test.observed, "unknown") || cells[3] != test.attribute || !strings.HasPrefix(cells[4], test.request) {
				t.Errorf("the row is %q", cells)
			}
		})
	}
}

// refuse has kube-apiserver answer each request for a policy with an error.
func refuse(kube *fake.Clientset, answer error) {
	kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return answer != nil, nil, answer })
}

// denied is the refusal of the companion's webhook.
func denied(reasons string) error {
	var causes []metav1.StatusCause
	for text := range strings.SplitSeq(reasons, "\n") {
		causes = append(causes, metav1.StatusCause{Message: text})
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
		Message: `admission webhook "node.cpupolicy.workload.openshift.io" denied the request: node n1: policy static is refused:` + "\n" + reasons,
		Details: &metav1.StatusDetails{Causes: causes},
	}}
}

func TestAPolicyIsAskedForByItsButton(t *testing.T) {
	s, kube := newServer(node("n1", "false", "none", ""))
	b := serve(t, s)
	b.open("hosts")
	b.submit("n1", nil)
	const want = `n1 {"metadata":{"annotations":{"` + nodestatus.StatusAnnotation + `":"{\"status\":\"requested\",\"policy\":\"static\"}"},"resourceVersion":""}}`
	if got := written(kube); len(got) != 1 || got[0] != want {
		t.Errorf("it has written %q, want %s", got, want)
	}
	if _, why := b.button("n1"); !strings.HasSuffix(b.at.Path, "/hosts") || why != "The policy static is requested." || b.alerts() != "" {
		t.Errorf("%s is shown, the button cannot be pressed because of %q, and the alerts are %q", b.at, why, b.alerts())
	}
}

func TestWhyARequestWasRefusedStaysInViewUntilTheNext(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		want   string
	}{
		"by the companion":       {denied("pod a/b has the exclusive CPUs 2-3; delete it\nand another reason"), "Enable CPU Manager was refused on n1 pod a/b has the exclusive CPUs 2-3; delete it and another reason"},
		"by RBAC":                {apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", fmt.Errorf(`User "anna" cannot patch resource "nodes"`)), `nodes "n1" is forbidden: User "anna" cannot patch resource "nodes"`},
		"by a policy about them": {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n1", nil), `Node "n1" is invalid`},
	} {
		t.Run(name, func(t *testing.T) {
			s, kube := newServer(node("n1", "false", "none", ""), node("n2", "false", "none", ""))
			refuse(kube, test.answer)
			b := serve(t, s)
			b.open("host?name=n1")
			b.submit("n1", nil)
			if !strings.HasSuffix(b.at.Path, "/host") || b.at.Query().Get("name") != "n1" {
				t.Errorf("%s is shown", b.at)
			}
			for _, link := range []string{"hosts", "host?name=n2", "virtual-machines"} {
				if b.open(link); !strings.Contains(b.alerts(), test.want) {
					t.Errorf("%s: the alerts are %q, want %q", link, b.alerts(), test.want)
				}
			}
			kube.ReactionChain = kube.ReactionChain[1:]
			b.open("hosts")
			if b.submit("n2", nil); b.alerts() != "" {
				t.Errorf("the alerts are %q", b.alerts())
			}
		})
	}
}

func TestAHostSaysWhatWouldPreventASwitch(t *testing.T) {
	observed := node("n1", "false", "none", `{"status":"complete","policy":"none","id":"1","message":"well done","since":"2026-11-23T10:00:00Z"}`)
	for name, test := range map[string]struct {
		node   *corev1.Node
		answer error
		want   []string
	}{
		"nothing":                 {observed, nil, []string{"Nothing prevents it"}},
		"two reasons":             {observed, denied("pod a/b is Guaranteed\npod a/c is Guaranteed"), []string{"pod a/b is Guaranteed", "pod a/c is Guaranteed"}},
		"it may not be asked for": {observed, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", fmt.Errorf("nobody")), []string{`nodes "n1" is forbidden: nobody`}},
		"a switch under way":      {node("n1", "false", "none", `{"status":"running","policy":"static","id":"1"}`), nil, []string{"Checks The policy static is running."}},
		"an unknown node":         {node("n1", "", "", ""), nil, []string{"It is not known what could be asked for.", "It was not observed since the node booted."}},
	} {
		t.Run(name, func(t *testing.T) {
			s, kube := newServer(test.node)
			refuse(kube, test.answer)
			b := serve(t, s)
			b.open("host?name=n1")
			for _, want := range test.want {
				if b.code != http.StatusOK || !strings.Contains(text(b.page), want) {
					t.Errorf("it does not say %q, but %d: %s", want, b.code, text(b.page))
				}
			}
			if terms := b.terms(); test.node == observed && (terms["Since"] != "2026-11-23 10:00:00 UTC" || terms["Message"] != "well done") {
				t.Errorf("the detail is %v", terms)
			}
			if got := written(kube); len(got) > 0 {
				t.Errorf("it has written %q", got)
			}
		})
	}
	s, _ := newServer()
	b := serve(t, s)
	if b.open("host?name=gone"); b.code != http.StatusNotFound || !strings.Contains(b.alerts(), `nodes "gone" not found`) {
		t.Errorf("a node that is gone is answered with %d: %s", b.code, b.alerts())
	}
}

func TestHostsHavePages(t *testing.T) {
	s, kube := newServer()
	s.pageSize = 2
	kube.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		if options.Limit != 2 {
			t.Errorf("it asks for %d nodes", options.Limit)
		}
		if options.Continue == "there & then" {
			return true, &corev1.NodeList{Items: []corev1.Node{*node("c", "", "", "")}}, nil
		}
		return true, &corev1.NodeList{ListMeta: metav1.ListMeta{Continue: "there & then"}, Items: []corev1.Node{*node("a", "", "", "")}}, nil
	})
	b := serve(t, s)
	b.open("hosts")
	links := all(b.page, func(n *html.Node) bool { return attribute(n, "rel") == "next" })
	if b.cells("a") == nil || len(links) != 1 {
		t.Fatalf("the first page is %s", text(b.page))
	}
	b.open("hosts" + attribute(links[0], "href"))
	if b.cells("a") != nil || b.cells("c") == nil || strings.Contains(text(b.page), "Next page") {
		t.Errorf("the second page is %s", text(b.page))
	}
}

func vm(t *testing.T, namespace, name, rest string) *unstructured.Unstructured {
	t.Helper()
	vm := &unstructured.Unstructured{}
	manifest := fmt.Sprintf("{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {namespace: %s, name: %q}, %s}", namespace, name, rest)
	if err := yaml.Unmarshal([]byte(manifest), &vm.Object); err != nil {
		t.Fatal(err)
	}
	return vm
}

func TestVirtualMachinesArePinnedByTheirCheckbox(t *testing.T) {
	const hostile = `<img src=x onerror=alert(1)>`
	s, _ := newServer(
		vm(t, "one", "stopped", "spec: {template: {spec: {domain: {cpu: {cores: 2}}}}}, status: {printableStatus: Stopped}"),
		vm(t, "one", "plain", "spec: {template: {spec: {domain: {}}}}"),
		vm(t, "one", "pinned", "spec: {template: {spec: {domain: {cpu: {dedicatedCpuPlacement: true}}}}}"),
		vm(t, "one", "running", "spec: {template: {spec: {domain: {cpu: {dedicatedCpuPlacement: true}}}}}, status: {created: true}"),
		vm(t, "one", "empty", "spec: {}"),
		vm(t, "two", hostile, "spec: {template: {spec: {domain: {}}}}, status: {printableStatus: <script>}"),
	)
	fake := s.dynamic.(*dynamicfake.FakeDynamicClient)
	b := serve(t, s)
	for _, test := range []struct {
		name, of string
		check    bool
		// want is the patch that is written, without the resource version; empty is that none is.
		want string
		// why says why nothing is written, where that is an error.
		why string
	}{
		{"stopped", "one", true, `"dedicatedCpuPlacement":true`, ""},
		{"stopped", "one", true, "", ""},
		{"stopped", "", false, `"dedicatedCpuPlacement":false`, ""},
		{"plain", "", true, `"dedicatedCpuPlacement":true`, ""},
		{"pinned", "", false, `"dedicatedCpuPlacement":false`, ""},
		{hostile, "", true, `"dedicatedCpuPlacement":true`, ""},
		{"running", "", false, "", "It has a VirtualMachineInstance; stop it first."},
		{"empty", "", true, "", "It has no spec.template."},
	} {
		t.Run(fmt.Sprintf("%s, checked %t", test.name, test.check), func(t *testing.T) {
			b.t = t
			link := "virtual-machines"
			if test.of != "" {
				link += "?namespace=" + test.of
			}
			b.open(link)
			if _, why := b.button(test.name); why != test.why {
				t.Errorf("it cannot be changed because of %q, want %q", why, test.why)
			}
			change := url.Values{"pinned": nil}
			if test.check {
				change = url.Values{"pinned": {"true"}}
			}
			fake.ClearActions()
			form := b.form(test.name)
			if form == nil {
				t.Fatalf("it is not there: %s", text(b.page))
			}
			b.send(form, change)
			var patches []string
			for _, action := range fake.Actions() {
				if patch, ok := action.(clienttesting.PatchActionImpl); ok {
					patches = append(patches, string(patch.Patch))
				}
			}
			if (test.want != "") != (len(patches) == 1) || !strings.Contains(strings.Join(patches, ""), test.want) {
				t.Errorf("it has written %q, want %q", patches, test.want)
			}
			if (b.alerts() != "") != (test.why != "") || !strings.Contains(b.alerts(), test.why) {
				t.Errorf("the alerts are %q, want %q", b.alerts(), test.why)
			}
			// The page is still that of the namespace.
			if (b.form(hostile) == nil) != (test.of != "") {
				t.Errorf("the page is %s", text(b.page))
			}
		})
	}
	b.t = t
	if b.open("virtual-machines"); len(b.cells("stopped")) != 4 || b.cells("stopped")[2] != "Stopped" || b.cells(hostile)[2] != "<script>" {
		t.Errorf("the rows are %q and %q", b.cells("stopped"), b.cells(hostile))
	}
}

func TestVirtualMachinesThatCannotBeListed(t *testing.T) {
	resource := vmResource.GroupResource()
	for name, test := range map[string]struct {
		link   string
		answer error
		code   int
		want   string
	}{
		"without KubeVirt":                       {"virtual-machines", apierrors.NewNotFound(resource, ""), 200, "KubeVirt is not installed"},
		"without the right, in all namespaces":   {"virtual-machines", apierrors.NewForbidden(resource, "", fmt.Errorf("no")), 403, "The virtual machines of all namespaces cannot be listed; choose one virtualmachines.kubevirt.io is forbidden: no"},
		"without the right, in a namespace":      {"virtual-machines?namespace=one", apierrors.NewForbidden(resource, "", fmt.Errorf("no")), 403, "The virtual machines of the namespace one cannot be listed"},
		"while kube-apiserver cannot be reached": {"virtual-machines", fmt.Errorf("connection refused"), 502, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newServer()
			s.dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "virtualmachines", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			b := serve(t, s)
			if b.open(test.link); b.code != test.code || !strings.Contains(text(b.page), test.want) {
				t.Errorf("it is answered with %d: %s", b.code, text(b.page))
			}
		})
	}
}
