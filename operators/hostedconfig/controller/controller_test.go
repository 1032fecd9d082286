// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
)

func TestMain(m *testing.M) { companiontest.Main(m, &Companion{}) }

const (
	// patience is short for the tests; soon is how long a change may take to arrive.
	patience = 2 * time.Second
	soon     = 5 * time.Second
)

// namespace is the control plane's, at home.
const namespace = "clusters-hosted"

// clusters are a management cluster and a hosted one, whose administrator is hosted. The companion and its policies are installed.
type clusters struct {
	t            *testing.T
	home, hosted *companiontest.Installed
}

func newClusters(t *testing.T) *clusters {
	t.Helper()
	i := companiontest.Install(t, Name)
	i.AddHosted(t)
	t.Cleanup(func() {
		// The next test has the same clusters.
		_ = i.Client.DeleteAllOf(context.Background(), &corev1.ConfigMap{}, client.InNamespace(namespace), client.HasLabels{v1beta1.PoolLabel})
		_ = i.Hosted.Client.DeleteAllOf(context.Background(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{})
		testenv.Eventually(t, 20*time.Second, func() error {
			return i.Hosted.Client.DeleteAllOf(context.Background(), &corev1.ConfigMap{}, client.InNamespace(v1beta1.HostedKubeletConfigNamespace), client.HasLabels{companion.OwnerLabel})
		})
		_ = i.Hosted.Client.DeleteAllOf(context.Background(), &corev1.Node{})
	})
	return &clusters{t: t, home: i, hosted: i.Hosted}
}

func (c *clusters) do(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// start starts the companion, until the function that it returns is called.
func (c *clusters) start() (stop func()) {
	c.t.Helper()
	process := c.home.Start(c.t, func(config *configv1alpha1.ControllerConfiguration) {
		config.Settings.Raw = fmt.Appendf(nil, `{"controlPlaneNamespace":%q,"patience":%q}`, namespace, patience)
	})
	testenv.Eventually(c.t, time.Minute, func() error { return c.home.Ready(c.t) })
	return func() { c.do(process.Terminate(c.t, time.Minute)) }
}

func aKubeletConfig(policy string) string {
	return "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: numa}\nspec: {kubeletConfig: {topologyManagerPolicy: " + policy + "}}\n"
}

// source creates or changes what nodepool would in the control plane's namespace.
func (c *clusters) source(name, pool, value string) {
	c.t.Helper()
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1beta1.KubeletConfigLabel: "", v1beta1.PoolLabel: pool}}, Data: map[string]string{"config": value}}
	if err := c.home.Client.Update(c.t.Context(), source); err != nil {
		c.do(c.home.Client.Create(c.t.Context(), source))
	}
}

func (c *clusters) remove(name string) {
	c.t.Helper()
	c.do(c.home.Client.Delete(c.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
}

// copies returns the copies in the hosted cluster, as NAME POOL VALUE.
func (c *clusters) copies() (copies []string) {
	c.t.Helper()
	var list corev1.ConfigMapList
	c.do(c.hosted.Client.List(c.t.Context(), &list, client.InNamespace(v1beta1.HostedKubeletConfigNamespace), client.HasLabels{v1beta1.KubeletConfigLabel}))
	for _, copied := range list.Items {
		copies = append(copies, fmt.Sprintf("%s %s %s", copied.Name, copied.Labels[v1beta1.PoolLabel], copied.Data["config"]))
	}
	slices.Sort(copies)
	return copies
}

// awaitCopies waits until these are all copies, and returns how long that took.
func (c *clusters) awaitCopies(within time.Duration, want ...string) time.Duration {
	c.t.Helper()
	started := time.Now()
	testenv.Eventually(c.t, within, func() error {
		if got := c.copies(); !slices.Equal(got, want) {
			return fmt.Errorf("the copies are\n%q\nwant\n%q", got, want)
		}
		return nil
	})
	return time.Since(started)
}

func TestKubeletConfigsReachTheHostedCluster(t *testing.T) {
	c := newClusters(t)
	// Somebody has taken the name before, for something else.
	if err := c.hosted.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.HostedKubeletConfigNamespace}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	squatter := named(theCopy)
	squatter.Data, squatter.Immutable = map[string]string{"theirs": "x"}, ptr.To(true)
	c.do(c.hosted.Client.Create(t.Context(), squatter))
	stop := c.start()
	c.source("numa-pool-a", "pool-a", aKubeletConfig("restricted"))
	t.Logf("copied after %s", c.awaitCopies(soon, "numa-pool-a pool-a "+aKubeletConfig("restricted")))
	c.source("numa-pool-a", "pool-a", aKubeletConfig("single-numa-node"))
	t.Logf("changed after %s", c.awaitCopies(soon, "numa-pool-a pool-a "+aKubeletConfig("single-numa-node")))
	// Nothing can be made of this one.
	c.source("numa-pool-a", "pool-a", "kind: [")
	c.source("other-pool-b", "pool-b", aKubeletConfig("none"))
	c.awaitCopies(soon, "numa-pool-a pool-a "+aKubeletConfig("single-numa-node"), "other-pool-b pool-b "+aKubeletConfig("none"))
	// A successor of the pool lets the old one go at once.
	c.source("renamed-pool-a", "pool-a", aKubeletConfig("restricted"))
	c.remove("numa-pool-a")
	if after := c.awaitCopies(soon, "other-pool-b pool-b "+aKubeletConfig("none"), "renamed-pool-a pool-a "+aKubeletConfig("restricted")); after > patience {
		t.Errorf("it goes after %s, although its successor is there", after)
	}
	// Without one it stays for the patience, and comes back as if nothing had been.
	before := c.uid("other-pool-b")
	c.remove("other-pool-b")
	time.Sleep(patience / 2)
	c.source("other-pool-b", "pool-b", aKubeletConfig("none"))
	time.Sleep(patience)
	if after := c.uid("other-pool-b"); after != before {
		t.Errorf("the copy is another object, %s and not %s", after, before)
	}
	c.remove("other-pool-b")
	if after := c.awaitCopies(soon, "renamed-pool-a pool-a "+aKubeletConfig("restricted")); after < patience-time.Second/2 {
		t.Errorf("it goes after %s, with a patience of %s", after, patience)
	}
	// Gone while nothing runs.
	stop()
	c.remove("renamed-pool-a")
	c.start()
	c.awaitCopies(soon)
}

func (c *clusters) uid(name string) string {
	c.t.Helper()
	var copied corev1.ConfigMap
	c.do(c.hosted.Client.Get(c.t.Context(), client.ObjectKey{Namespace: v1beta1.HostedKubeletConfigNamespace, Name: name}, &copied))
	return string(copied.UID)
}

// tampering is what a hosted administrator tries with the copy numa-pool-a.
var tampering = map[string]func(context.Context, client.Client) error{
	"an update": func(ctx context.Context, hosted client.Client) error {
		var copied corev1.ConfigMap
		if err := hosted.Get(ctx, theCopy, &copied); err != nil {
			return err
		}
		copied.Data["config"] = "theirs"
		return hosted.Update(ctx, &copied)
	},
	"a patch": func(ctx context.Context, hosted client.Client) error {
		return hosted.Patch(ctx, named(theCopy), client.RawPatch("application/merge-patch+json", []byte(`{"data":{"config":"theirs"}}`)))
	},
	"server-side apply": func(ctx context.Context, hosted client.Client) error {
		object := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"config": "theirs"}}}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		object.SetNamespace(named(theCopy).Namespace)
		object.SetName(named(theCopy).Name)
		return hosted.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership, client.FieldOwner("them"))
	},
	"immutability": func(ctx context.Context, hosted client.Client) error {
		return hosted.Patch(ctx, named(theCopy), client.RawPatch("application/merge-patch+json", []byte(`{"data":{"config":"theirs"},"immutable":true}`)))
	},
	"another pool": func(ctx context.Context, hosted client.Client) error {
		return hosted.Patch(ctx, named(theCopy), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"hypershift.openshift.io/nodePool":"pool-b"}}}`)))
	},
	"the removal of its labels": func(ctx context.Context, hosted client.Client) error {
		return hosted.Patch(ctx, named(theCopy), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null},"data":{"config":"theirs"}}`)))
	},
	"a delete": func(ctx context.Context, hosted client.Client) error { return hosted.Delete(ctx, named(theCopy)) },
	"a deletecollection": func(ctx context.Context, hosted client.Client) error {
		return hosted.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(theCopy.Namespace), client.MatchingLabels{v1beta1.KubeletConfigLabel: ""})
	},
	"a copy of their own": func(ctx context.Context, hosted client.Client) error {
		object := named(client.ObjectKey{Namespace: theCopy.Namespace, Name: "theirs"})
		object.Labels = map[string]string{v1beta1.KubeletConfigLabel: "", v1beta1.PoolLabel: "pool-b", companion.OwnerLabel: Name}
		return hosted.Create(ctx, object)
	},
	"a copy of their own that nobody owns": func(ctx context.Context, hosted client.Client) error {
		object := named(client.ObjectKey{Namespace: theCopy.Namespace, Name: "theirs"})
		object.Labels = map[string]string{v1beta1.KubeletConfigLabel: "true", v1beta1.PoolLabel: "pool-b"}
		return hosted.Create(ctx, object)
	},
}

var theCopy = client.ObjectKey{Namespace: v1beta1.HostedKubeletConfigNamespace, Name: "numa-pool-a"}

func named(key client.ObjectKey) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

// awaitPolicies waits until kube-apiserver knows of the policies.
func (c *clusters) awaitPolicies() {
	c.t.Helper()
	testenv.Eventually(c.t, 20*time.Second, func() error {
		if err := tampering["a patch"](c.t.Context(), client.NewDryRunClient(c.hosted.Client)); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a patch is not refused: %w", err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1beta1.PoolLabel: "x"}}}
		if err := c.hosted.Client.Create(c.t.Context(), node, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a node that chooses its pool is not refused: %w", err)
		}
		return nil
	})
}

func TestTampering(t *testing.T) {
	c := newClusters(t)
	c.start()
	c.source("numa-pool-a", "pool-a", aKubeletConfig("restricted"))
	want := "numa-pool-a pool-a " + aKubeletConfig("restricted")
	c.awaitCopies(soon, want)
	c.awaitPolicies()
	for _, name := range slices.Sorted(maps.Keys(tampering)) {
		t.Run(name+" is refused", func(t *testing.T) {
			if err := tampering[name](t.Context(), c.hosted.Client); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "change it on the management cluster") {
				t.Errorf("the error is %v", err)
			}
			if got := c.copies(); !slices.Equal(got, []string{want}) {
				t.Errorf("the copies became %q", got)
			}
		})
	}
	for name, test := range map[string]struct {
		user    string
		refused bool
	}{
		"the namespace controller may delete it":               {"system:serviceaccount:kube-system:namespace-controller", false},
		"the garbage collector may delete it":                  {"system:serviceaccount:kube-system:generic-garbage-collector", false},
		"somebody else of that name may not":                   {"system:serviceaccount:default:namespace-controller", true},
		"who impersonates the companion may, and it is undone": {"system:serviceaccount:partition-hostedconfig:hostedconfig", false},
	} {
		t.Run(name, func(t *testing.T) {
			config := rest.CopyConfig(c.hosted.Config)
			config.Impersonate = rest.ImpersonationConfig{UserName: test.user, Groups: []string{"system:masters"}}
			as, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
			c.do(err)
			if err := as.Delete(t.Context(), named(theCopy)); apierrors.IsForbidden(err) != test.refused {
				t.Errorf("the error is %v", err)
			}
			t.Logf("repaired after %s", c.awaitCopies(soon, want))
		})
	}
	t.Run("who mints the companion's token may, and it is undone", func(t *testing.T) {
		as := c.hosted.As(t, c.hosted.Token(t, c.hosted.Namespace, Name, nil))
		for _, name := range []string{"an update", "a delete"} { // it may not patch
			if err := tampering[name](t.Context(), as); err != nil {
				t.Errorf("%s is refused: %v", name, err)
			}
			t.Logf("%s is repaired after %s", name, c.awaitCopies(soon, want))
		}
	})
	t.Run("other ConfigMaps of that namespace are anybody's", func(t *testing.T) {
		object := named(client.ObjectKey{Namespace: theCopy.Namespace, Name: "other"})
		c.do(c.hosted.Client.Create(t.Context(), object))
		c.do(c.hosted.Client.Delete(t.Context(), object))
	})
	t.Run("whom the policies let through is not changed", func(t *testing.T) {
		key := client.ObjectKey{Namespace: "partition-hostedconfig", Name: "identity"}
		if err := c.hosted.Client.Patch(t.Context(), named(key), client.RawPatch("application/merge-patch+json", []byte(`{"data":{"user":"them"}}`))); !apierrors.IsForbidden(err) {
			t.Errorf("the error is %v", err)
		}
		c.do(c.hosted.Client.Patch(t.Context(), named(key), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
	})
	t.Run("without the policies all of it is undone", func(t *testing.T) {
		c.do(c.hosted.Client.DeleteAllOf(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}))
		testenv.Eventually(t, 20*time.Second, func() error {
			return tampering["a patch"](t.Context(), client.NewDryRunClient(c.hosted.Client))
		})
		for _, name := range slices.Sorted(maps.Keys(tampering)) {
			if err := tampering[name](t.Context(), c.hosted.Client); err != nil {
				t.Errorf("%s is refused: %v", name, err)
			}
			within := soon
			if strings.HasPrefix(name, "a copy of their own") {
				within += patience
			}
			t.Logf("%s is repaired after %s", name, c.awaitCopies(within, want).Round(time.Millisecond))
		}
	})
}

// A Node that no record names loses its label in time, whatever is wrong with another record.
func TestAWrongRecordKeepsNobodyWaiting(t *testing.T) {
	wrong := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nodes", Labels: map[string]string{v1beta1.NodesLabel: ""}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{v1beta1.PoolLabel: "pool-a"}}}
	n := &Nodes{Home: fake.NewClientBuilder().WithObjects(wrong).Build(), Hosted: fake.NewClientBuilder().WithObjects(node).Build(), Namespace: namespace, Patience: patience}
	if result, err := n.Reconcile(t.Context(), one); err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > patience {
		t.Errorf("the next look is after %s, want %s: %v", result.RequeueAfter, patience, err)
	}
}

// Nor does a Node that the hosted cluster refuses to have labelled.
func TestARefusedNodeKeepsNobodyWaiting(t *testing.T) {
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nodes", Labels: map[string]string{v1beta1.NodesLabel: "", v1beta1.PoolLabel: "pool-a"}}, Data: map[string]string{"refused": ""}}
	refused := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
	gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone", Labels: map[string]string{v1beta1.PoolLabel: "pool-a"}}}
	hosted := fake.NewClientBuilder().WithObjects(refused, gone).WithInterceptorFuncs(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return apierrors.NewForbidden(corev1.Resource("nodes"), "refused", errors.New("a webhook says so"))
	}}).Build()
	n := &Nodes{Home: fake.NewClientBuilder().WithObjects(record).Build(), Hosted: hosted, Namespace: namespace, Patience: patience}
	if result, err := n.Reconcile(t.Context(), one); err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > patience {
		t.Errorf("the next look is after %s, want %s: %v", result.RequeueAfter, patience, err)
	}
}

// A label that is due to go goes with the next look, if it could not with the first.
func TestALabelThatIsDueToGoGoesAfterAConflict(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u", Labels: map[string]string{v1beta1.PoolLabel: "pool-a"}}}
	patches := 0
	hosted := fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		if patches++; patches == 1 {
			return apierrors.NewConflict(corev1.Resource("nodes"), object.GetName(), errors.New("it has changed"))
		}
		return c.Patch(ctx, object, patch, options...)
	}}).Build()
	now := time.Now()
	n := &Nodes{Home: fake.NewClientBuilder().Build(), Hosted: hosted, Namespace: namespace, Patience: patience, Now: func() time.Time { return now }}
	for _, later := range []time.Duration{0, patience, 0} {
		now = now.Add(later)
		_, _ = n.Reconcile(t.Context(), one)
	}
	after := &corev1.Node{}
	if err := hosted.Get(t.Context(), client.ObjectKey{Name: "node-1"}, after); err != nil || after.Labels[v1beta1.PoolLabel] != "" {
		t.Errorf("after %d attempts within the patience the label is %q: %v", patches, after.Labels[v1beta1.PoolLabel], err)
	}
}

func TestNodesGetTheirPools(t *testing.T) {
	c := newClusters(t)
	c.start()
	c.source("numa-pool-a", "pool-a", aKubeletConfig("restricted"))
	c.awaitCopies(soon, "numa-pool-a pool-a "+aKubeletConfig("restricted"))
	c.awaitPolicies()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	c.do(c.hosted.Client.Create(t.Context(), node))
	has := func(want string) {
		t.Helper()
		started := time.Now()
		testenv.Eventually(t, soon+patience, func() error {
			c.do(c.hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(node), node))
			if got := node.Labels[v1beta1.PoolLabel]; got != want {
				return fmt.Errorf("its pool is %q, want %q", got, want)
			}
			return nil
		})
		t.Logf("it has %q after %s", want, time.Since(started).Round(time.Millisecond))
	}
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nodes-pool-a", Labels: map[string]string{v1beta1.NodesLabel: "", v1beta1.PoolLabel: "pool-a"}}, Data: map[string]string{"node-1": ""}}
	c.do(c.home.Client.Create(t.Context(), record))
	has("pool-a")

	// The node itself, as its kubelet or as an administrator, in its metadata or by its status.
	config := rest.CopyConfig(c.hosted.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:node-1", Groups: []string{"system:nodes", "system:masters"}}
	kubelet, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	c.do(err)
	lie := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"hypershift.openshift.io/nodePool":"pool-b"}}}`))
	for name, as := range map[string]client.Client{"the kubelet": kubelet, "an administrator": c.hosted.Client} {
		for path, err := range map[string]error{
			"an update":               as.Patch(t.Context(), node.DeepCopy(), lie),
			"an update of the status": as.Status().Patch(t.Context(), node.DeepCopy(), lie),
			"a removal":               as.Patch(t.Context(), node.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`))),
			"a create":                as.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2", Labels: map[string]string{v1beta1.PoolLabel: "pool-b"}}}),
		} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "what the management cluster recorded") {
				t.Errorf("%s by %s: %v", path, name, err)
			}
		}
	}
	c.do(kubelet.Status().Patch(t.Context(), node.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"other":"x"}}}`))))

	// A paused node keeps its label, and gets its pool once it is not paused any more.
	pause := func(value string) {
		c.do(c.hosted.Client.Patch(t.Context(), node.DeepCopy(), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"workload.openshift.io/paused":%s}}}`, value))))
	}
	pause(`""`)
	record.Labels[v1beta1.PoolLabel] = "pool-b"
	c.do(c.home.Client.Update(t.Context(), record))
	time.Sleep(patience)
	has("pool-a")
	pause("null")
	has("pool-b")

	// Another pool, and none. Without the policies a lie is undone.
	record.Labels[v1beta1.PoolLabel] = "pool-c"
	c.do(c.home.Client.Update(t.Context(), record))
	has("pool-c")
	c.do(c.hosted.Client.DeleteAllOf(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}))
	testenv.Eventually(t, 20*time.Second, func() error { return c.hosted.Client.Patch(t.Context(), node.DeepCopy(), lie) })
	has("pool-c")
	c.do(c.home.Client.Delete(t.Context(), record))
	has("")
}
