// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// waiting are the pods that the filter has refused at a node. The scheduler looks at such pods again when it hears of a report itself, but
// that may be before the ledger has heard of it, and some news is that a pod has started, which no report comes after.
type waiting struct {
	mutex sync.Mutex
	// order is that in which they were refused.
	order []types.UID
	pods  map[types.UID]*corev1.Pod
	news  bool
}

// againMost is how many pods, at most, are looked at again at once, and againPeriod the least time between two such looks: other pods must get their
// turn, and so must the rest of the scheduler.
const (
	againMost   = 128
	againPeriod = 200 * time.Millisecond
)

func (w *waiting) add(pod *corev1.Pod) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.pods[pod.UID] == nil {
		w.order = append(w.order, pod.UID)
	}
	w.pods[pod.UID] = pod
}

// tell says that something may let them pass.
func (w *waiting) tell() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.news = true
}

// next returns those to look at again.
func (w *waiting) next() map[string]*corev1.Pod {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.news {
		return nil
	}
	some := min(len(w.order), againMost)
	pods := make(map[string]*corev1.Pod, some)
	for _, uid := range w.order[:some] {
		pod := w.pods[uid]
		pods[pod.Namespace+"/"+pod.Name] = pod
		delete(w.pods, uid)
	}
	w.order = w.order[some:]
	w.news = len(w.order) > 0
	return pods
}

// run has them looked at again until the context ends. Pods that are gone, or have a node by now, are ignored.
func (w *waiting) run(ctx context.Context, activate func(klog.Logger, map[string]*corev1.Pod)) {
	ticker := time.NewTicker(againPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if pods := w.next(); len(pods) > 0 {
				activate(klog.FromContext(ctx), pods)
			}
		}
	}
}
