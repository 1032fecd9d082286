// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/mirror"
	"workload.openshift.io/operators/tuning"
)

var (
	histories = flag.Int("histories", 30, "how many histories TestHistories runs")
	seed      = flag.Uint64("seed", 0, "the one history that TestHistories tells; 0 means all, and none told")
)

// world is a management cluster with ConfigMaps of three NodePools, and a hosted cluster with a node of each. At home somebody
// edits, breaks and deletes ConfigMaps. In the hosted cluster somebody edits, deletes and creates Tuneds and Profiles; every
// value that they write begins with an x. Calls fail before or after they took effect, and the process starts again.
type world struct {
	*rand.Rand
	home, hosted client.Client // never fail
	now          time.Time
	tuneds       *tunedsReconciler
	profiles     *profilesReconciler
	counter      int
	quiet        bool
	// source has the value in each pool's ConfigMap, empty if that is not valid. A pool without a ConfigMap is missing.
	source map[string]string
	// good has, by pools, the values of which one was valid last when this process looked; a pool is missing if that is not known.
	good    map[string][]string
	problem error
	tell    func(string, ...any)
}

const worldPools = 3

func poolName(i int) string { return fmt.Sprintf("pool-%d", i) }

func (w *world) value(prefix string) string {
	w.counter++
	return fmt.Sprintf("%s%d", prefix, w.counter)
}

// start is the process' start: it remembers nothing.
func (w *world) start() {
	judged := func(object client.Object) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object.DeepCopyObject())
		if err == nil {
			if mode := object.GetAnnotations()[tunedv1.DeferredAnnotation]; mode == "x" {
				w.problem = fmt.Errorf("%T %s is written with somebody's deferral", object, object.GetName())
			}
			delete(content, "metadata")
			if strings.Contains(fmt.Sprint(content), "=x") {
				w.problem = fmt.Errorf("%T %s is written with what somebody wrote in the hosted cluster: %v", object, object.GetName(), content)
			}
		}
	}
	disturbed := func(c client.Client) client.Client {
		return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				return w.call(func() error { return c.Get(ctx, key, object, options...) })
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				return w.call(func() error { return c.List(ctx, list, options...) })
			},
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				judged(object)
				object.SetUID(types.UID(w.value("uid"))) // the fake client gives none
				return w.call(func() error { return c.Create(ctx, object, options...) })
			},
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
				judged(object)
				return w.call(func() error { return c.Update(ctx, object, options...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				return w.call(func() error { return c.Delete(ctx, object, options...) })
			},
		})
	}
	home, hosted, pools := disturbed(w.home), disturbed(w.hosted), newPools()
	settings := Settings{ControlPlaneNamespace: "home"}
	settings.Default()
	w.tuneds = &tunedsReconciler{
		home: home, hosted: hosted, live: hosted, settings: settings, pools: pools,
		mirror:   &mirror.Mirror{Reader: hosted, Writer: hosted, Kind: tunedKind, Namespace: tunedv1.Namespace, Label: companion.OwnerLabel, Value: Name},
		recorder: &events.FakeRecorder{}, now: func() time.Time { return w.now }, told: map[types.UID]string{},
	}
	w.profiles = &profilesReconciler{hosted, hosted, settings, pools, false}
	w.good = map[string][]string{}
}

// call does a call, or fails before or after it; sometimes somebody acts in the hosted cluster before it.
func (w *world) call(do func() error) error {
	if w.quiet {
		return do()
	}
	switch w.IntN(15) {
	case 0:
		return errors.New("the call did not arrive")
	case 1:
		_ = do()
		return errors.New("the answer was lost")
	case 2:
		w.disturb()
	}
	return do()
}

// disturb is what somebody does in the hosted cluster.
func (w *world) disturb() {
	ctx, pool := context.Background(), poolName(w.IntN(worldPools))
	profile := []tunedv1.TunedProfile{{Name: "queues", Data: "[sysctl]\na=" + w.value("x")}}
	tuned := &tunedv1.Tuned{ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: tuning.HostedName("queues", pool)}}
	if w.IntN(4) == 0 {
		tuned.Name = "theirs"
	}
	node := &tunedv1.Profile{ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: "node-" + pool}}
	switch what := w.IntN(5); what {
	case 0, 1:
		err := w.hosted.Get(ctx, client.ObjectKeyFromObject(tuned), tuned)
		tuned.Spec = tunedv1.TunedSpec{Profile: profile, Recommend: []tunedv1.TunedRecommend{{Profile: "queues", Priority: 0}}}
		tuned.Labels = map[string]string{tunedv1.NodePoolNameLabel: poolName(w.IntN(worldPools))}
		tuned.Annotations = map[string]string{tunedv1.DeferredAnnotation: "x"}
		w.tell("somebody writes the Tuned %s with the labels %v", tuned.Name, tuned.Labels)
		if apierrors.IsNotFound(err) {
			tuned.UID = types.UID(w.value("uid"))
			_ = w.hosted.Create(ctx, tuned)
		} else {
			_ = w.hosted.Update(ctx, tuned)
		}
	case 2:
		w.tell("somebody deletes the Tuned %s", tuned.Name)
		_ = w.hosted.Delete(ctx, tuned)
	case 3:
		if w.hosted.Get(ctx, client.ObjectKeyFromObject(node), node) == nil {
			w.tell("somebody edits the Profile %s", node.Name)
			node.Spec.Profile = profile
			node.Annotations = map[string]string{tunedv1.DeferredAnnotation: "x"}
			_ = w.hosted.Update(ctx, node)
		}
	case 4:
		w.tell("somebody deletes the Profile %s", node.Name)
		_ = w.hosted.Delete(ctx, node)
	}
}

// change is what somebody does at home.
func (w *world) change() {
	ctx, pool := context.Background(), poolName(w.IntN(worldPools))
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "tuned-" + pool, UID: types.UID("cm-" + pool), Labels: map[string]string{tunedv1.TunedConfigLabel: "true", tunedv1.NodePoolLabel: pool}}}
	value := w.value("h")
	text := tunedText("queues", value)
	switch w.IntN(4) {
	case 0:
		value = ""
		text = strings.Replace(text, "recommend:", "recomend:", 1)
		w.tell("%s is broken", pool)
	case 1:
		w.tell("%s is deleted", pool)
		_ = w.home.Delete(ctx, configMap)
		delete(w.source, pool)
		return
	default:
		w.tell("%s has h%d", pool, w.counter)
	}
	configMap.Data, w.source[pool] = map[string]string{tunedv1.TuningKey: text}, value
	if apierrors.IsAlreadyExists(w.home.Create(ctx, configMap.DeepCopy())) {
		_ = w.home.Update(ctx, configMap)
	}
}

// look is one of each reconciler's.
func (w *world) look() error {
	ctx := logr.NewContext(context.Background(), logr.Discard())
	_, err := w.tuneds.Reconcile(ctx, everything)
	w.tell("look at the Tuneds: %v", err)
	for i := range worldPools {
		pool := poolName(i)
		switch value, there := w.source[pool]; {
		case !there:
			delete(w.good, pool)
		case value != "" && err == nil:
			w.good[pool] = []string{value}
		case value != "" && w.good[pool] != nil: // it may have been read
			w.good[pool] = append(w.good[pool], value)
		}
	}
	for i := range worldPools {
		_, err := w.profiles.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: "node-" + poolName(i)}})
		w.tell("look at node-%s: %v", poolName(i), err)
	}
	return w.problem
}

func runHistory(seed uint64, tell func(string, ...any)) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tunedv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	hosted := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&tunedv1.Tuned{}, &tunedv1.Profile{})
	for i := range worldPools {
		hosted.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + poolName(i), Labels: map[string]string{tunedv1.NodePoolLabel: poolName(i)}}})
	}
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(0, 0), source: map[string]string{}, tell: tell,
		home: fake.NewClientBuilder().WithScheme(scheme).Build(), hosted: hosted.Build(),
	}
	w.start()
	for range 25 {
		switch w.IntN(6) {
		case 0, 1:
			w.change()
		case 2:
			w.disturb()
		case 3:
			tell("the process starts again")
			w.start()
		default:
			w.now = w.now.Add(time.Duration(w.IntN(8)) * time.Second)
			if err := w.look(); err != nil {
				return err
			}
		}
	}
	// Nothing disturbs any more.
	w.quiet = true
	for range 4 {
		w.now = w.now.Add(w.tuneds.settings.Patience.Duration)
		if err := w.look(); err != nil {
			return err
		}
	}
	for i := range worldPools {
		if err := w.settled(poolName(i)); err != nil {
			return err
		}
	}
	return nil
}

// settled reports whether a pool is as its ConfigMap says.
func (w *world) settled(pool string) error {
	ctx := context.Background()
	profile := &tunedv1.Profile{}
	value, there := w.source[pool]
	var tuneds tunedv1.TunedList
	if err := w.hosted.List(ctx, &tuneds, client.MatchingLabels{tunedv1.NodePoolNameLabel: pool}); err != nil {
		return err
	}
	_ = w.hosted.Get(ctx, client.ObjectKey{Namespace: tunedv1.Namespace, Name: "node-" + pool}, profile)
	want := []string{value}
	if there && value == "" {
		if want = w.good[pool]; want == nil {
			return nil // it stays as it is, whatever that is
		}
	}
	has := func(data string) bool {
		return slices.ContainsFunc(want, func(value string) bool { return strings.HasSuffix(strings.TrimSpace(data), "="+value) })
	}
	switch {
	case !there && (len(tuneds.Items) > 0 || profile.Spec.Config.TunedProfile != "openshift-node"):
		return fmt.Errorf("%s has no ConfigMap, and the Tuneds %v and the Profile %v", pool, tuneds.Items, profile.Spec)
	case there && (len(tuneds.Items) != 1 || !has(tuneds.Items[0].Spec.Profile[0].Data)):
		return fmt.Errorf("%s has %q, and the Tuneds %v", pool, want, tuneds.Items)
	case there && (len(profile.Spec.Profile) != 1 || !has(profile.Spec.Profile[0].Data)):
		return fmt.Errorf("%s has %q, and the Profile %v", pool, want, profile.Spec)
	}
	return nil
}

// TestHistories holds that nothing in the hosted cluster is ever calculated from anything there, and that it becomes what the
// management cluster says, or said last while that was valid.
func TestHistories(t *testing.T) {
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
