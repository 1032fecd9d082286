// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	hostedconfig "workload.openshift.io/operators/hostedconfig/controller"
	nodepool "workload.openshift.io/operators/nodepool/controller"
)

var (
	histories = flag.Int("histories", 150, "how many histories TestTwoHops runs")
	seed      = flag.Uint64("seed", 0, "the one history that TestTwoHops tells; 0 means all, and none told")
)

const (
	ofUsers, controlPlane = "clusters", "clusters-hosted"
	patience              = 10 * time.Second
)

// world is a management cluster with two NodePools, a hosted cluster, and the two companions that carry a pool's
// configuration from the one to the other. Users edit sources, break them, delete them and make them again, change what
// pools name, and delete pools. People with rights in the control plane's namespace and in the hosted cluster edit copies,
// delete them, make them immutable and take labels off. Sources are missing for one look, calls fail before or after
// they took effect, and each companion is started again at any time.
type world struct {
	*rand.Rand
	home, hosted client.WithWatch // never fail
	first        *nodepool.Reconciler
	second       *hostedconfig.Configs
	now          time.Time
	// overlooked is what one look of the second hop does not see, or of the first one.
	overlooked string
	// missing says since when a source of the second hop was not seen.
	missing map[string]time.Time
	quiet   bool
	writes  int
	problem error
	tell    func(string, ...any)
}

func (w *world) born(object client.Object) client.Object {
	object.SetUID(types.UID(fmt.Sprint(w.Uint64())))
	return object
}

// disturbed is a client of a cluster whose calls fail.
func (w *world) disturbed(of client.WithWatch, judge func(client.Object)) client.WithWatch {
	call := func(do func() error) error {
		if w.quiet {
			return do()
		}
		switch w.IntN(25) {
		case 0:
			return errors.New("the call did not arrive")
		case 1:
			_ = do()
			return errors.New("the answer was lost")
		}
		return do()
	}
	return interceptor.NewClient(of, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*corev1.ConfigMap); ok && key.Name == w.overlooked {
				return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name)
			}
			return call(func() error { return c.Get(ctx, key, object, options...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			err := call(func() error { return c.List(ctx, list, options...) })
			if found, ok := list.(*corev1.ConfigMapList); ok && err == nil {
				found.Items = slices.DeleteFunc(found.Items, func(item corev1.ConfigMap) bool { return item.Name == w.overlooked })
				w.seen(found.Items)
			}
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			w.writes++
			return call(func() error { return c.Create(ctx, w.born(object), options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			w.writes++
			return call(func() error {
				var stored corev1.ConfigMap
				if err := of.Get(ctx, client.ObjectKeyFromObject(object), &stored); err != nil {
					return err
				}
				// As the API server refuses it (pkg/apis/core/validation, ValidateConfigMapUpdate).
				data, _, _ := unstructured.NestedStringMap(object.(*unstructured.Unstructured).Object, "data")
				if ptr.Deref(stored.Immutable, false) && !maps.Equal(data, stored.Data) {
					return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), stored.Name, nil)
				}
				return c.Update(ctx, object, options...)
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			w.writes++
			judge(object)
			return call(func() error { return c.Delete(ctx, object, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			w.writes++
			return call(func() error { return c.SubResource(name).Patch(ctx, object, patch, options...) })
		},
	})
}

func (w *world) startFirst() {
	c := w.disturbed(w.home, w.judgeFirst)
	w.first = &nodepool.Reconciler{Client: c, Reader: c, Now: func() time.Time { return w.now }}
}

func (w *world) startSecond() {
	home, hosted := w.disturbed(w.home, nil), w.disturbed(w.hosted, w.judgeSecond)
	w.second = &hostedconfig.Configs{Home: home, Hosted: hosted, HostedReader: hosted, Namespace: controlPlane, Patience: patience, Now: func() time.Time { return w.now }}
}

// judgeFirst is asked of each copy that the first hop deletes.
func (w *world) judgeFirst(object client.Object) {
	pool := &v1beta1.NodePool{}
	_, name, _ := strings.Cut(object.GetAnnotations()[v1beta1.PoolLabel], "/")
	if err := w.home.Get(context.Background(), client.ObjectKey{Namespace: ofUsers, Name: name}, pool); err != nil {
		return // the pool has gone
	}
	var stored corev1.ConfigMap
	if err := w.home.Get(context.Background(), client.ObjectKeyFromObject(object), &stored); err == nil && ptr.Deref(stored.Immutable, false) {
		return // it may be created again
	}
	if want, valid := w.expected(pool); !valid || want[object.GetName()] != "" {
		w.problem = fmt.Errorf("the first hop deletes %s, which NodePool %s asks for: %v, or cannot be judged now", object.GetName(), name, want)
	}
}

// judgeSecond is asked of each copy that the second hop deletes.
func (w *world) judgeSecond(object client.Object) {
	var list corev1.ConfigMapList
	if err := w.home.List(context.Background(), &list, client.InNamespace(controlPlane), client.HasLabels{v1beta1.KubeletConfigLabel}); err != nil {
		w.problem = err
	}
	var stored corev1.ConfigMap
	if err := w.hosted.Get(context.Background(), client.ObjectKeyFromObject(object), &stored); err != nil || ptr.Deref(stored.Immutable, false) {
		return
	}
	for _, source := range list.Items {
		switch {
		case source.Name == object.GetName() && (w.missing[source.Name].IsZero() || w.now.Sub(w.missing[source.Name]) < patience):
			w.problem = fmt.Errorf("the second hop deletes %s, whose source is there", source.Name)
		case source.Labels[v1beta1.PoolLabel] == object.GetLabels()[v1beta1.PoolLabel] && source.Name != object.GetName():
			return // its successor
		}
	}
	if since := w.missing[object.GetName()]; since.IsZero() || w.now.Sub(since) < patience {
		w.problem = fmt.Errorf("the second hop deletes %s, of which the source is missing since %s only", object.GetName(), since)
	}
}

func aTuned(name string, value int) string {
	return fmt.Sprintf("apiVersion: tuned.openshift.io/v1\nkind: Tuned\nmetadata: {name: %[1]s}\nspec:\n  profile: [{name: %[1]s, data: \"[sysctl]\\nvm.swappiness=%[2]d\"}]\n", name, value)
}

func aKubeletConfig(name string, value int) string {
	return fmt.Sprintf("apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: %s}\nspec: {kubeletConfig: {maxPods: %d}}\n", name, value)
}

// The sources t0 and t1 have Tuneds, k0 and k1 KubeletConfigs.
var sources = []string{"t0", "t1", "k0", "k1"}

func key(source string) string {
	if source[0] == 't' {
		return "tuning"
	}
	return "config"
}

// expected returns the copies of a pool that the sources make, by their names, and whether all of them can be used. It knows
// nothing of how the companions decide.
func (w *world) expected(pool *v1beta1.NodePool) (want map[string]string, valid bool) {
	want = map[string]string{}
	valid = true
	read := func(name string) string {
		var source corev1.ConfigMap
		if err := w.home.Get(context.Background(), client.ObjectKey{Namespace: ofUsers, Name: name}, &source); err != nil || strings.HasPrefix(source.Data[key(name)], "broken") {
			valid = false
		}
		return source.Data[key(name)]
	}
	var tuneds []string
	for _, reference := range pool.Spec.TuningConfig {
		tuneds = append(tuneds, read(reference.Name))
	}
	if slices.Sort(tuneds); len(tuneds) > 0 {
		want["tuned-"+pool.Name] = strings.Join(tuneds, "---\n")
	}
	for _, reference := range pool.Spec.Config {
		want[reference.Name+"-"+pool.Name] = read(reference.Name)
	}
	if len(pool.Spec.Config) > 1 {
		valid = false
	}
	return want, valid
}

// write writes a source; a negative value breaks it.
func (w *world) write(name string, value int) {
	text := aTuned(name, value)
	switch {
	case value < 0:
		text = "broken: ["
	case name[0] == 'k':
		text = aKubeletConfig(name, value)
	}
	w.tell("the user writes %s: %q", name, text)
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ofUsers, Name: name}, Data: map[string]string{key(name): text}}
	if w.home.Update(context.Background(), source) != nil {
		_ = w.home.Create(context.Background(), w.born(source))
	}
}

// user is what somebody does to pools and their sources.
func (w *world) user() {
	ctx := context.Background()
	name := sources[w.IntN(len(sources))]
	poolName := []string{"a", "b"}[w.IntN(2)]
	pool := &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: ofUsers, Name: poolName}}
	err := w.home.Get(ctx, client.ObjectKeyFromObject(pool), pool)
	switch what := w.IntN(8); {
	case what == 0 && w.IntN(2) == 0:
		w.write(name, -1)
	case what < 3:
		w.write(name, w.IntN(100))
	case what == 3:
		w.tell("the user deletes %s", name)
		_ = w.home.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ofUsers, Name: name}})
	case what == 4 && err == nil && w.IntN(2) == 0:
		w.tell("the user deletes NodePool %s", poolName)
		_ = w.home.Delete(ctx, pool)
	default:
		pool.Spec = v1beta1.NodePoolSpec{ClusterName: "hosted"}
		for _, name := range sources {
			if name[0] == 't' && w.IntN(2) == 0 || name[0] == 'k' && w.IntN(3) > 0 {
				continue
			}
			if name[0] == 't' {
				pool.Spec.TuningConfig = append(pool.Spec.TuningConfig, corev1.LocalObjectReference{Name: name})
			} else {
				pool.Spec.Config = append(pool.Spec.Config, corev1.LocalObjectReference{Name: name})
			}
		}
		w.tell("the user has NodePool %s name %v and %v", poolName, pool.Spec.TuningConfig, pool.Spec.Config)
		if err != nil {
			_ = w.home.Create(ctx, w.born(pool))
		} else {
			_ = w.home.Update(ctx, pool)
		}
	}
}

// tamper is what somebody does to a copy.
func (w *world) tamper() {
	ctx := context.Background()
	where, in, namespace := w.home, "the control plane's namespace", controlPlane
	if w.IntN(2) == 0 {
		where, in, namespace = w.hosted, "the hosted cluster", v1beta1.HostedKubeletConfigNamespace
	}
	var list corev1.ConfigMapList
	_ = where.List(ctx, &list, client.InNamespace(namespace))
	if len(list.Items) == 0 {
		return
	}
	object := &list.Items[w.IntN(len(list.Items))]
	switch w.IntN(4) {
	case 0:
		w.tell("somebody deletes %s in %s", object.Name, in)
		_ = where.Delete(ctx, object)
	case 1:
		if !ptr.Deref(object.Immutable, false) && where == w.hosted {
			w.tell("somebody edits %s in %s", object.Name, in)
			object.Data = map[string]string{"config": "theirs"}
			_ = where.Update(ctx, object)
		}
	case 2:
		w.tell("somebody makes %s in %s immutable", object.Name, in)
		object.Immutable = ptr.To(true)
		_ = where.Update(ctx, object)
	case 3:
		if where == w.hosted {
			w.tell("somebody takes the labels off %s in %s", object.Name, in)
			if w.missing[object.Name].IsZero() { // else nothing says any more that it is a copy
				object.Labels = nil
				_ = where.Update(ctx, object)
			}
		}
	}
}

func (w *world) lookFirst() error {
	if !w.quiet && w.IntN(8) == 0 {
		w.overlooked = sources[w.IntN(len(sources))]
	}
	_, err := w.first.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: controlPlane}})
	w.tell("a look of the first hop at %s, overlooking %q: %v", w.now.Format("05"), w.overlooked, err)
	w.overlooked = ""
	return w.problem
}

// seen is what the second hop's look sees of its sources.
func (w *world) seen(items []corev1.ConfigMap) {
	for _, pool := range []string{"a", "b"} {
		for _, name := range sources {
			name += "-" + pool
			if slices.ContainsFunc(items, func(item corev1.ConfigMap) bool { return item.Name == name }) {
				delete(w.missing, name)
			} else if w.missing[name].IsZero() {
				w.missing[name] = w.now
			}
		}
	}
}

func (w *world) lookSecond() error {
	ctx := context.Background()
	var list corev1.ConfigMapList
	if err := w.home.List(ctx, &list, client.InNamespace(controlPlane), client.HasLabels{v1beta1.KubeletConfigLabel}); err != nil {
		return err
	}
	if !w.quiet && w.IntN(8) == 0 && len(list.Items) > 0 {
		w.overlooked = list.Items[w.IntN(len(list.Items))].Name
	}
	_, err := w.second.Reconcile(ctx, reconcile.Request{})
	w.tell("a look of the second hop at %s, overlooking %q: %v", w.now.Format("05"), w.overlooked, err)
	w.overlooked = ""
	return w.problem
}

// copies are those in a namespace, by their names.
func copies(in client.Client, namespace string, selection client.ListOption) map[string]string {
	var list corev1.ConfigMapList
	if err := in.List(context.Background(), &list, client.InNamespace(namespace), selection); err != nil {
		panic(err)
	}
	values := map[string]string{}
	for _, object := range list.Items {
		for _, value := range object.Data {
			values[object.Name] = value
		}
	}
	return values
}

func runHistory(seed uint64, tell func(string, ...any)) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	namespace := func(name string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1beta1.HostedClusterAnnotation: "clusters/hosted"}}}
	}
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(0, 0), missing: map[string]time.Time{}, tell: tell,
		home:   fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1beta1.NodePool{}).WithObjects(namespace(ofUsers), namespace(controlPlane)).Build(),
		hosted: fake.NewClientBuilder().WithScheme(scheme).Build(),
	}
	w.startFirst()
	w.startSecond()
	for _, name := range sources {
		w.write(name, 50)
	}
	for range 40 {
		var err error
		switch w.IntN(8) {
		case 0, 1:
			w.user()
		case 2:
			w.tamper()
		case 3:
			tell("a companion is started again")
			if w.IntN(2) == 0 {
				w.startFirst()
			} else {
				w.startSecond()
			}
		case 4, 5:
			err = w.lookFirst()
		default:
			w.now = w.now.Add(time.Duration(w.IntN(8)) * time.Second)
			err = w.lookSecond()
		}
		if err != nil {
			return err
		}
	}
	// Nothing disturbs any more: a look of each hop settles it, but for what waits for its time.
	w.quiet = true
	for range 2 {
		if err := errors.Join(w.lookFirst(), w.lookSecond(), w.lookFirst(), w.lookSecond()); err != nil {
			return err
		}
		w.now = w.now.Add(patience)
	}
	writes := w.writes
	if err := errors.Join(w.lookFirst(), w.lookSecond()); err != nil {
		return err
	}
	if w.writes != writes {
		return fmt.Errorf("at rest, the hops write %d times", w.writes-writes)
	}
	return w.agree()
}

// agree returns an error unless the three places agree: what pools name, the control plane's namespace, the hosted cluster.
func (w *world) agree() error {
	between := copies(w.home, controlPlane, client.HasLabels{v1beta1.PoolLabel})
	for _, name := range []string{"a", "b"} {
		pool := &v1beta1.NodePool{}
		err := w.home.Get(context.Background(), client.ObjectKey{Namespace: ofUsers, Name: name}, pool)
		want, valid := map[string]string{}, true
		if err == nil {
			want, valid = w.expected(pool)
		}
		got := maps.Clone(between)
		maps.DeleteFunc(got, func(copied, _ string) bool { return !strings.HasSuffix(copied, "-"+name) })
		if valid && !maps.Equal(got, want) {
			return fmt.Errorf("the control plane's namespace has %q of NodePool %s, want %q", got, name, want)
		}
		for _, condition := range pool.Status.Conditions {
			if condition.Type == v1beta1.ConditionRendered {
				continue // no companion tuning is here
			}
			if !valid && condition.Status == corev1.ConditionFalse && condition.Message == "" || valid && condition.Status != corev1.ConditionTrue {
				return fmt.Errorf("NodePool %s is valid: %t, and has the condition %+v", name, valid, condition)
			}
		}
		for copied, value := range got {
			if strings.HasPrefix(value, "broken") || value == "" {
				return fmt.Errorf("the copy %s has %q, which was never valid", copied, value)
			}
		}
	}
	maps.DeleteFunc(between, func(name, _ string) bool { return strings.HasPrefix(name, "tuned-") })
	if hosted := copies(w.hosted, v1beta1.HostedKubeletConfigNamespace, client.HasLabels{v1beta1.KubeletConfigLabel}); !maps.Equal(hosted, between) {
		return fmt.Errorf("the hosted cluster has %q, and the control plane's namespace %q", hosted, between)
	}
	return nil
}

func TestTwoHops(t *testing.T) {
	if *seed != 0 {
		if err := runHistory(*seed, t.Logf); err != nil {
			t.Error(err)
		}
		return
	}
	for i := range *histories {
		if err := runHistory(uint64(i+1), func(string, ...any) {}); err != nil {
			t.Fatalf("%v; -args -seed=%d tells how it came to that", err, i+1)
		}
	}
}
