// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// TestWebhooks calls the webhooks of one replica, which does not lead, by kube-apiserver.
func TestWebhooks(t *testing.T) {
	i := companiontest.Install(t, Name)
	lead(t, i)
	i.Start(t, nil)
	testenv.Eventually(t, time.Minute, func() error { return i.Ready(t) })
	i.RouteWebhooks(t)
	t.Cleanup(func() { // the next installation would find a URL beside its Service
		i.Kubectl(t, "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "cpupolicy.workload.openshift.io")
	})
	h := hooks{i}
	h.controller(t).create(t, worker("routed"))
	testenv.Eventually(t, time.Minute, func() error { return h.admin(t).ask("routed", requested, client.DryRunAll) })

	t.Run("a user asks for a policy", h.asks)
	t.Run("unparsable values", h.corrects)
	t.Run("the controller writes", h.controllerWrites)
	t.Run("one node of the control plane after another", h.locks)
	t.Run("CPUs of a DRA driver", h.cpuDriver)
	t.Run("what is posted", h.knowsItsNodes)
	t.Run("the lock of an operation that has just ended", h.locksAfterTheEnd)

	remove := testenv.KubeVirt(t, i.ControlPlane, "spec.template.spec.newer", "spec.template.spec.domain.newer", "spec.template.spec.domain.resources.newer")
	t.Run("beside KubeVirt", h.besideKubeVirt)
	t.Run("machines", h.vms)
	t.Run("machines that are posted", h.knowsItsVMs)
	t.Run("quantities without an end", h.readsNoEndlessQuantities)

	remove()
	t.Run("without KubeVirt again", func(t *testing.T) {
		checkRefused(t, h.admin(t).ask("routed", requested, client.DryRunAll), 0)
	})
}

func (h hooks) cpuDriver(t *testing.T) {
	slice := func(driver, node string) {
		t.Helper()
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "slice-"}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "cpu-0"}}}
		if err := h.i.Client.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.i.Client.Delete(context.WithoutCancel(t.Context()), s); err != nil {
				t.Error(err)
			}
		})
	}
	slice("gpu.example.com", "routed")
	slice("dra.cpu", "another")
	checkRefused(t, h.admin(t).ask("routed", requested, client.DryRunAll), 0)
	slice("dra.cpu", "routed")
	checkRefused(t, h.admin(t).ask("routed", requested, client.DryRunAll), http.StatusConflict, "node routed has ResourceSlices of the DRA driver dra.cpu")
}

// lead takes the Lease of the controllers, so that what they do is not seen here.
func lead(t *testing.T, i *companiontest.Installed) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: "partition-controller"}}
	gone := func(ctx context.Context) {
		if err := client.IgnoreNotFound(i.Client.Delete(ctx, lease)); err != nil {
			t.Fatal(err)
		}
	}
	gone(t.Context())
	now := metav1.NowMicro()
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("test"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: &now, RenewTime: &now}
	if err := i.Client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gone(context.Background()) })
}

type hooks struct{ i *companiontest.Installed }

// user is somebody with all rights, and what kube-apiserver has warned of.
type user struct {
	client.Client
	mu       sync.Mutex
	warnings []string
}

func (u *user) HandleWarningHeader(code int, _, text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if code == 299 {
		u.warnings = append(u.warnings, text)
	}
}

// admin returns a client of an administrator, one for each call.
func (h hooks) admin(t *testing.T) *user { return h.as(t, rest.ImpersonationConfig{}) }

// controller returns a client that writes as the controller, with more rights than that has.
func (h hooks) controller(t *testing.T) *user {
	return h.as(t, rest.ImpersonationConfig{UserName: h.i.User(), Groups: []string{"system:masters"}, Extra: map[string][]string{credentialID: {"JTI=test"}}})
}

func (h hooks) as(t *testing.T, impersonate rest.ImpersonationConfig) *user {
	t.Helper()
	u := &user{}
	config := rest.CopyConfig(h.i.Config)
	config.Impersonate, config.WarningHandler = impersonate, u
	var err error
	if u.Client, err = client.New(config, client.Options{Scheme: testenv.Scheme()}); err != nil {
		t.Fatal(err)
	}
	return u
}

// create creates an object, and gives it its status if it is of a kind of which a test has that.
func (u *user) create(t *testing.T, object client.Object) {
	t.Helper()
	status := object.DeepCopyObject().(client.Object)
	if err := u.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Delete(context.Background(), object, client.GracePeriodSeconds(0)) })
	if kind := status.GetObjectKind().GroupVersionKind().Kind; kind == "Node" {
		status.SetResourceVersion(object.GetResourceVersion())
		if err := u.Status().Update(t.Context(), status); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	requested = `{"status":"requested","policy":"static"}`
	backAgain = `{"status":"requested","policy":"none"}`
	evicting  = `{"status":"requested","policy":"static","allowEvicted":true}`
	withdrawn = ""
)

// ask writes the annotation of a node, or removes it.
func (u *user) ask(node, value string, options ...client.PatchOption) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, nodestatus.StatusAnnotation, value)
	if value == withdrawn {
		patch = fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, nodestatus.StatusAnnotation)
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	return u.Patch(context.Background(), object, client.RawPatch("application/merge-patch+json", []byte(patch)), options...)
}

// worker returns a node that is Ready, and reserves half a CPU of four.
func worker(name string) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Capacity:    corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")},
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("3500m"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")},
		},
	}
}

func controlPlane(name string) *corev1.Node {
	node := worker(name)
	node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	return node
}

// pod returns one of a node that is Guaranteed.
func pod(name, node, cpu string) *corev1.Pod {
	list := "memory=1Gi cpu=" + cpu
	pod := podtest.Pod(nil, podtest.Container("main", list, list))
	pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Spec.Containers[0].Image = "default", name, node, "main"
	return pod
}

// checkRefused checks that an error has this code, and all of the parts, or that there is none if the
// code is zero.
func checkRefused(t *testing.T, err error, code int32, parts ...string) {
	t.Helper()
	if code == 0 {
		if err != nil {
			t.Error(err)
		}
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code {
		t.Errorf("the error is %v, want code %d", err, code)
		return
	}
	if (apierrors.ReasonForError(err) == metav1.StatusReasonConflict) != (code == http.StatusConflict) {
		t.Errorf("the code is %d, and the reason %s", code, apierrors.ReasonForError(err))
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q: %v", part, err)
		}
	}
}

func (h hooks) asks(t *testing.T) {
	admin := h.admin(t)
	admin.create(t, worker("full"))
	for _, p := range []*corev1.Pod{pod("first", "full", "2"), pod("second", "full", "1"), pod("third", "full", "1")} {
		admin.create(t, p)
	}
	bare := worker("bare")
	bare.Status.Allocatable = bare.Status.Capacity
	admin.create(t, bare)
	rests := worker("rests")
	metav1.SetMetaDataAnnotation(&rests.ObjectMeta, nodegroup.PausedAnnotation, "")
	admin.create(t, rests)
	for _, test := range []struct {
		name, node, value string
		code              int32
		want              []string
		warning           string
	}{
		{name: "nothing prevents it", node: "routed", value: requested},
		{name: "no CPU is reserved", node: "bare", value: requested, code: http.StatusConflict,
			want: []string{"node bare: policy static is refused:\nnode bare reserves no CPU", "; set cpu in kubeReserved"}},
		{name: "pods have exclusive CPUs, and each has its line", node: "full", value: backAgain, code: http.StatusConflict,
			want: []string{"\npod default/first is Guaranteed and asks for whole CPUs (2); delete it", "\npod default/second is Guaranteed", "\npod default/third is Guaranteed"}},
		{name: "a pod would no longer fit", node: "full", value: requested, code: http.StatusConflict, want: []string{"\npod default/", "--allow-evicted"}},
		{name: "a pod may end", node: "full", value: evicting, warning: "pod default/"},
		{name: "what only the controller adds", node: "routed", value: `{"status":"requested","policy":"static","message":"mine"}`, code: http.StatusForbidden,
			want: []string{nodestatus.StatusAnnotation, `"message":"mine"`, "only the controller"}},
		{name: "a text that must be true or false", node: "routed", value: `{"status":"requested","policy":"static","allowEvicted":"yes"}`, code: http.StatusUnprocessableEntity,
			want: []string{nodestatus.StatusAnnotation, "allowEvicted"}},
		{name: "a paused node", node: "rests", value: requested, warning: "node rests is paused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, options := range [][]client.PatchOption{{client.DryRunAll}, nil} {
				admin := h.admin(t)
				err := admin.ask(test.node, test.value, options...)
				checkRefused(t, err, test.code, test.want...)
				warned := slices.ContainsFunc(admin.warnings, func(text string) bool { return strings.Contains(text, test.warning) })
				if warned != (test.warning != "") {
					t.Errorf("the warnings are %q, want one with %q", admin.warnings, test.warning)
				}
				if test.code == 0 && options == nil {
					checkRefused(t, admin.ask(test.node, backAgain), http.StatusConflict, "policy static is requested")
					checkRefused(t, admin.ask(test.node, withdrawn), 0)
				}
			}
		})
	}
}

func (h hooks) corrects(t *testing.T) {
	node := worker("broken")
	node.Annotations = map[string]string{nodestatus.StatusAnnotation: `{"status":"comp`}
	h.controller(t).create(t, node)
	admin := h.admin(t)
	checkRefused(t, admin.ask("broken", withdrawn, client.DryRunAll), 0)
	checkRefused(t, admin.ask("broken", requested, client.DryRunAll), 0)
}

func (h hooks) controllerWrites(t *testing.T) {
	controller, admin := h.controller(t), h.admin(t)
	controller.create(t, worker("switched"))
	const taken = `{"status":"requested","policy":"static","id":"a1"}`
	checkRefused(t, admin.ask("switched", requested), 0)
	checkRefused(t, controller.ask("switched", taken), 0)
	checkRefused(t, admin.ask("switched", withdrawn), http.StatusConflict, `"a1"`)
	checkRefused(t, controller.ask("switched", `{"status":"running","policy":"static","id":"b2"}`), http.StatusConflict, `id "b2"`, `id "a1"`)
	checkRefused(t, controller.ask("switched", `{"status":"failed","policy":"static","id":"a1"}`), 0)
	checkRefused(t, admin.ask("switched", withdrawn), 0)
}

func (h hooks) lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nodegroup.ControlPlaneLock.Namespace, Name: nodegroup.ControlPlaneLock.Name}}
}

// holders returns who holds the lock of the control plane.
func (h hooks) holders(t *testing.T) string {
	t.Helper()
	lease := h.lease()
	if err := h.i.Client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); apierrors.IsNotFound(err) {
		return ""
	} else if err != nil {
		t.Fatal(err)
	}
	holders, err := nodegroup.HoldersOf(lease)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, holder := range holders {
		if age := time.Since(holder.Since); age > time.Minute || age < -time.Minute {
			t.Errorf("holder %s has the time %s", holder.Operation, holder.Since)
		}
		names = append(names, holder.Operation+" "+holder.Node)
	}
	return strings.Join(names, ",")
}

// unlock gives the lock of the control plane back, which leaves the Lease, or not.
func (h hooks) unlock(t *testing.T, leave bool) {
	t.Helper()
	lease := h.lease()
	err := h.i.Client.Delete(context.Background(), lease)
	if err == nil && leave {
		lease = h.lease()
		err = h.i.Client.Create(context.Background(), lease)
	}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// hold has an operation hold the lock, as the controller takes it.
func (h hooks) hold(t *testing.T, operation, node string) {
	t.Helper()
	h.holdAs(t, Name, operation, node)
}

func (h hooks) holdAs(t *testing.T, owner, operation, node string) {
	t.Helper()
	h.unlock(t, false)
	lease := h.lease()
	nodegroup.PutHolders(lease, nodegroup.Holders{{Owner: owner, Operation: operation, Node: node, Since: time.Now()}})
	if err := h.i.Client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

func (h hooks) locks(t *testing.T) {
	admin := h.admin(t)
	admin.create(t, controlPlane("cp-1"))
	admin.create(t, controlPlane("cp-2"))
	t.Cleanup(func() { h.unlock(t, false) })
	for _, options := range [][]client.PatchOption{{client.DryRunAll}, nil} {
		checkRefused(t, admin.ask("cp-1", requested, options...), 0)
		if got := h.holders(t); got != "" {
			t.Errorf("the webhook has written the holders %q", got)
		}
	}
	h.holdAs(t, "tuning", "reboot-1", "cp-1")
	checkRefused(t, admin.ask("cp-2", requested), http.StatusConflict, "\nnode cp-1 holds the lock of the control plane for the operation reboot-1 of tuning")
	h.hold(t, "static-1", "cp-1")
	for _, options := range [][]client.PatchOption{{client.DryRunAll}, nil} {
		checkRefused(t, admin.ask("cp-2", requested, options...), http.StatusConflict, "node cp-2: policy static is refused:", "\nnode cp-1 holds the lock of the control plane for the operation static-1")
	}
	checkRefused(t, admin.ask("routed", requested, client.DryRunAll), 0)
	h.unlock(t, true)
	checkRefused(t, admin.ask("cp-2", requested), 0)
}

// post sends a webhook a review, as everybody can who reaches its port.
func (h hooks) post(t *testing.T, path string, request admissionv1.AdmissionRequest) admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &request})
	if err != nil {
		t.Fatal(err)
	}
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 10 * time.Second}
	response, err := insecure.Post(h.i.Webhooks()+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&review); err != nil || review.Response == nil {
		t.Fatalf("the answer is %s: %v", response.Status, err)
	}
	return *review.Response
}

// What is posted says what is asked for. All else is the API's to say, and only to those who know the UID that it has.
func (h hooks) knowsItsNodes(t *testing.T) {
	admin := h.admin(t)
	node := worker("posted")
	admin.create(t, node)
	admin.create(t, pod("secret", "posted", "2"))
	other := controlPlane("posted-other")
	admin.create(t, other)
	t.Cleanup(func() { h.unlock(t, false) })
	forge := func(name string, uid types.UID, change func(*corev1.Node)) admissionv1.AdmissionRequest {
		forged := worker(name)
		forged.UID = uid
		old, err := json.Marshal(forged)
		if err != nil {
			t.Fatal(err)
		}
		forged.Annotations = map[string]string{nodestatus.StatusAnnotation: requested}
		if change != nil {
			change(forged)
		}
		posted, err := json.Marshal(forged)
		if err != nil {
			t.Fatal(err)
		}
		return admissionv1.AdmissionRequest{UID: "x", Name: name, Operation: admissionv1.Update, OldObject: runtime.RawExtension{Raw: old}, Object: runtime.RawExtension{Raw: posted}}
	}
	everyCPU := func(node *corev1.Node) {
		node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		node.Annotations[nodestatus.ObservedAnnotation] = `{"policy":"none","kubelet":{"reserved":"1e-9999999"},"at":"2026-11-23T10:00:00Z"}`
		node.Status.Capacity["cpu"], node.Status.Allocatable["pods"] = resource.MustParse("1E"), resource.MustParse("0")
	}
	none := func(node *corev1.Node) { node.Annotations[nodestatus.StatusAnnotation] = backAgain }
	for _, test := range []struct {
		name    string
		request admissionv1.AdmissionRequest
		code    int32 // zero is that it is allowed
		says    string
	}{
		{"a Node that is not there", forge("nobody", node.UID, everyCPU), http.StatusNotFound, ""},
		{"a Node without a name", forge("", node.UID, everyCPU), http.StatusNotFound, ""},
		{"a Node whose UID is not known", forge("posted", "", none), http.StatusNotFound, ""},
		{"a Node with another's UID", forge("posted", other.UID, none), http.StatusNotFound, ""},
		{"a Node whose labels, status and observation are made up", forge("posted", node.UID, everyCPU), 0, ""},
		{"a Node of the control plane", forge("posted-other", other.UID, nil), 0, ""},
		{"what prevents it on the node of the API", forge("posted", node.UID, none), http.StatusConflict, "pod default/secret is Guaranteed"},
		{"as the controller", func() admissionv1.AdmissionRequest {
			request := forge("nobody", "", none)
			request.UserInfo.Username = h.i.User()
			return request
		}(), http.StatusNotFound, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			begun := time.Now()
			answer := h.post(t, "/cpupolicy/validate-node", test.request)
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			if answer.Allowed != (test.code == 0) || !answer.Allowed && answer.Result.Code != test.code || len(answer.Warnings) > 0 {
				t.Errorf("the answer is %v, %v, with the warnings %q; want the code %d", answer.Allowed, answer.Result, answer.Warnings, test.code)
			}
			if message := answer.Result.Message; !strings.Contains(message, test.says) || test.says == "" && strings.Contains(message, "secret") {
				t.Errorf("it says %q, want %q", message, test.says)
			}
			if got := h.holders(t); got != "" {
				t.Errorf("it has written the holders %q", got)
			}
		})
	}
}

// An operation says that it has ended before it gives the lock back.
func (h hooks) locksAfterTheEnd(t *testing.T) {
	admin := h.admin(t)
	ended, next := controlPlane("ended"), controlPlane("next")
	ended.Annotations = map[string]string{nodestatus.StatusAnnotation: `{"status":"complete","policy":"static","id":"a1"}`}
	h.controller(t).create(t, ended)
	admin.create(t, next)
	t.Cleanup(func() { h.unlock(t, false) })
	hold := func(operation string) { h.hold(t, operation, "ended") }
	// Another operation of that node is not this one.
	hold("b2")
	checkRefused(t, admin.ask("next", requested), http.StatusConflict, "\nnode ended holds the lock of the control plane for the operation b2")

	hold("a1")
	released := make(chan struct{})
	go func() {
		defer close(released)
		time.Sleep(settleLimit / 6)
		if err := h.i.Client.Delete(context.Background(), h.lease()); err != nil {
			t.Error(err)
		}
	}()
	checkRefused(t, admin.ask("next", requested), 0)
	<-released
	checkRefused(t, admin.ask("next", withdrawn), 0)

	hold("a1")
	checkRefused(t, admin.ask("next", requested), http.StatusConflict, "\nnode ended holds the lock of the control plane for the operation a1")
}

func TestWarningsAreNoMoreThanKubeAPIServerPassesOn(t *testing.T) {
	findings := []cpupolicy.Finding{{Object: "node n1", Text: "is refused", Remedy: "wait"}}
	for n := range 40 {
		findings = append(findings, cpupolicy.Finding{Object: fmt.Sprintf("pod default/p%d", n), Text: strings.Repeat("does not\nfit ", 30), Remedy: "wait", Warning: true})
	}
	warnings, all := warningsOf(findings), 0
	for _, text := range warnings {
		all += len(text)
		if len(text) > 256 || strings.Contains(text, "\n") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
	if last := fmt.Sprintf("and %d more warnings", 40-len(warnings)+1); all >= 4096 || all < 3500 || warnings[len(warnings)-1] != last {
		t.Errorf("%d warnings with %d bytes; the last is %q, want %q", len(warnings), all, warnings[len(warnings)-1], last)
	}
	if few := warningsOf(findings[:3]); len(few) != 2 {
		t.Errorf("there are %d warnings, want 2", len(few))
	}
}
