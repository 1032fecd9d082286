// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	histories = flag.Int("histories", 200, "how many histories TestHistories runs")
	seed      = flag.Uint64("seed", 0, "the one history that TestHistories tells; 0 means all, and none told")
)

// world is a target, and sources of copies s0 to s3. A source changes, does not parse for a while, is missing for one look,
// or is gone for good. Somebody at the target edits, deletes, takes labels off, makes copies immutable, and creates objects
// of a copy's name. Calls fail, before or after they took effect, and the mirror is started again at any time.
type world struct {
	*rand.Rand
	target  client.Client // never fails
	mirror  *Mirror
	now     time.Time
	sources map[string]*source
	quiet   bool
	writes  int
	problem error
	tell    func(format string, args ...any)
}

type source struct {
	value          int
	broken, absent bool
	// since is when a look first did not see the source, after the last that did.
	since time.Time
}

const patience = 10 * time.Second

func (w *world) start() {
	disturbed := interceptor.NewClient(w.target.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return w.call(func() error { return c.Get(ctx, key, object, options...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return w.call(func() error { return c.List(ctx, list, options...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			w.writes++
			return w.call(func() error { return c.Create(ctx, w.born(object), options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			w.writes++
			if w.sources[object.GetName()].broken {
				w.problem = fmt.Errorf("the copy %s is written, and its source does not parse", object.GetName())
			}
			return w.call(func() error {
				var stored corev1.ConfigMap
				if err := w.target.Get(ctx, client.ObjectKeyFromObject(object), &stored); err != nil {
					return err
				}
				// As the API server refuses it (pkg/apis/core/validation, ValidateConfigMapUpdate).
				if value, _, _ := unstructured.NestedString(object.(*unstructured.Unstructured).Object, "data", "key"); ptr.Deref(stored.Immutable, false) && value != stored.Data["key"] {
					return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), stored.Name, nil)
				}
				return c.Update(ctx, object, options...)
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			w.writes++
			w.judge(object.GetName())
			return w.call(func() error { return c.Delete(ctx, object, options...) })
		},
	})
	w.mirror = &Mirror{Reader: disturbed, Writer: disturbed, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: "target", Label: "mirror", Value: "test"}
}

// born gives an object a UID, which the fake client does not.
func (w *world) born(object client.Object) client.Object {
	object.SetUID(types.UID(fmt.Sprint(w.Uint64())))
	return object
}

// judge is asked of each copy that the mirror deletes.
func (w *world) judge(name string) {
	var stored corev1.ConfigMap
	if err := w.target.Get(context.Background(), client.ObjectKey{Namespace: "target", Name: name}, &stored); err != nil || ptr.Deref(stored.Immutable, false) && w.sources[name].since.IsZero() {
		return // it is created again
	}
	if s := w.sources[name]; s.since.IsZero() || s.broken && !s.absent || w.now.Sub(s.since) < patience {
		w.problem = fmt.Errorf("the copy %s is deleted at %s before its time: %+v", name, w.now.Format("05"), *s)
	}
}

// call does a call, or fails before or after it; sometimes somebody acts at the target before it.
func (w *world) call(do func() error) error {
	if w.quiet {
		return do()
	}
	switch w.IntN(12) {
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

// disturb is what somebody does at the target.
func (w *world) disturb() {
	ctx := context.Background()
	name := fmt.Sprintf("s%d", w.IntN(4))
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "target", Name: name}, Data: map[string]string{"key": "theirs"}}
	err := w.target.Get(ctx, client.ObjectKeyFromObject(object), object)
	switch what := w.IntN(4); {
	case apierrors.IsNotFound(err):
		// Of a name that nobody wants, it must stay; of one that somebody does, it is taken over.
		w.tell("somebody creates %s", name)
		_ = w.target.Create(ctx, w.born(object))
	case what == 0:
		w.tell("somebody deletes %s", name)
		_ = w.target.Delete(ctx, object)
	case what == 1:
		w.tell("somebody edits %s", name)
		if !ptr.Deref(object.Immutable, false) {
			object.Data["key"] = "edited"
		}
		_ = w.target.Update(ctx, object)
	case what == 2 && !w.sources[name].absent:
		w.tell("somebody takes the label of %s off", name)
		object.Labels = nil
		_ = w.target.Update(ctx, object)
	case what == 3:
		w.tell("somebody makes %s immutable", name)
		object.Immutable = ptr.To(true)
		_ = w.target.Update(ctx, object)
	}
}

// change is what somebody does to a source.
func (w *world) change() {
	name := fmt.Sprintf("s%d", w.IntN(4))
	s := w.sources[name]
	switch w.IntN(4) {
	case 0:
		s.value++
	case 1:
		s.broken = !s.broken
	case 2:
		s.absent = !s.absent
	}
	w.tell("source %s is %+v", name, *s)
}

// look is one of the mirror's. A source is sometimes not seen by one look, though it is there.
func (w *world) look() error {
	want := Want{Patience: patience}
	overlooked := ""
	if !w.quiet && w.IntN(6) == 0 {
		overlooked = fmt.Sprintf("s%d", w.IntN(4))
	}
	for name, s := range w.sources {
		switch {
		case s.absent || name == overlooked:
			if s.since.IsZero() {
				s.since = w.now
			}
			continue
		case s.broken:
			want.Keep = append(want.Keep, types.NamespacedName{Namespace: "target", Name: name})
		default:
			want.Copies = append(want.Copies, configMap(fmt.Sprintf("%s=%d bare", name, s.value)))
		}
		s.since = time.Time{}
	}
	_, err := w.mirror.Look(context.Background(), want, w.now)
	w.tell("look at %s, overlooking %q: %v", w.now.Format("05"), overlooked, err)
	return w.problem
}

// labelled are the values of the copies.
func (w *world) labelled() map[string]string {
	var list corev1.ConfigMapList
	if err := w.target.List(context.Background(), &list, client.InNamespace("target"), client.MatchingLabels{"mirror": "test"}); err != nil {
		panic(err)
	}
	values := map[string]string{}
	for _, object := range list.Items {
		values[object.Name] = object.Data["key"]
	}
	return values
}

func runHistory(seed uint64, tell func(string, ...any)) error {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(0, 0), sources: map[string]*source{}, tell: tell,
		target: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "target", Name: "foreign"}, Data: map[string]string{"key": "theirs"}}).Build()}
	for i := range 4 {
		w.sources[fmt.Sprintf("s%d", i)] = &source{absent: w.IntN(2) == 0}
	}
	w.start()
	for range 25 {
		switch w.IntN(5) {
		case 0:
			w.change()
		case 1:
			w.disturb()
		case 2:
			tell("the mirror is started again")
			w.start()
		default:
			w.now = w.now.Add(time.Duration(w.IntN(8)) * time.Second)
			if err := w.look(); err != nil {
				return err
			}
		}
	}
	// Nothing disturbs any more: the second look is the last that writes, but for what waits for its time.
	w.quiet = true
	for range 2 {
		if err := w.look(); err != nil {
			return err
		}
	}
	w.now = w.now.Add(patience)
	for range 2 {
		if err := w.look(); err != nil {
			return err
		}
	}
	writes := w.writes
	if err := w.look(); err != nil {
		return err
	}
	if w.writes != writes {
		return fmt.Errorf("at rest, a look writes %d times", w.writes-writes)
	}
	got := w.labelled()
	for name, s := range w.sources {
		value, there := got[name]
		switch {
		case s.absent && there:
			return fmt.Errorf("the copy %s=%s is there, and its source has gone", name, value)
		case !s.absent && !s.broken && value != fmt.Sprint(s.value):
			return fmt.Errorf("the copy %s is %q (%t), want %d", name, value, there, s.value)
		}
	}
	var foreign corev1.ConfigMap
	if err := w.target.Get(context.Background(), client.ObjectKey{Namespace: "target", Name: "foreign"}, &foreign); err != nil || foreign.Data["key"] != "theirs" || len(foreign.Labels) > 0 {
		return fmt.Errorf("what is not the mirror's is %v, %v", foreign, err)
	}
	return nil
}

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
