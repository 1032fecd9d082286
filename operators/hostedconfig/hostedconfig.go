// SPDX-License-Identifier: Apache-2.0

// Package hostedconfig decides what a hosted cluster gets of what stands in its control plane's namespace: copies of
// KubeletConfigs, and on each Node the name of its NodePool. The rules are functions of plain values.
package hostedconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/manifest"
)

// Copies returns what the hosted cluster must have of these ConfigMaps, which are all of the control plane's namespace with
// KubeletConfigLabel. Keep are the names of copies that stay as they are: first those whose sources have no KubeletConfig
// now, for the reasons in problems, and then those whose sources are paused.
func Copies(sources []corev1.ConfigMap) (copies []*corev1.ConfigMap, keep []string, problems []error) {
	var paused []string
	for _, source := range sources {
		if nodegroup.Paused(&source) {
			paused = append(paused, source.Name)
			continue
		}
		if err := check(source); err != nil {
			keep = append(keep, source.Name)
			problems = append(problems, fmt.Errorf("ConfigMap %s/%s is not copied, and its copy stays as it is: %w", source.Namespace, source.Name, err))
			continue
		}
		copies = append(copies, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: v1beta1.HostedKubeletConfigNamespace, Name: source.Name,
				Labels: map[string]string{v1beta1.KubeletConfigLabel: "", v1beta1.PoolLabel: source.Labels[v1beta1.PoolLabel]},
			},
			Data: map[string]string{v1beta1.ConfigKey: source.Data[v1beta1.ConfigKey]},
		})
	}
	return copies, append(keep, paused...), problems
}

func check(source corev1.ConfigMap) error {
	if source.Labels[v1beta1.PoolLabel] == "" {
		return fmt.Errorf("it has no label %s", v1beta1.PoolLabel)
	}
	value, has := source.Data[v1beta1.ConfigKey]
	if !has {
		return fmt.Errorf("it has no key %s", v1beta1.ConfigKey)
	}
	var read struct {
		metav1.TypeMeta `json:",inline"`
		Spec            struct {
			KubeletConfig map[string]any `json:"kubeletConfig"`
		} `json:"spec"`
	}
	data, err := manifest.JSON(value)
	if err == nil {
		err = json.Unmarshal(data, &read)
	}
	if err != nil {
		return fmt.Errorf("key %s: %w", v1beta1.ConfigKey, err)
	}
	if group, _, _ := strings.Cut(read.APIVersion, "/"); group != "machineconfiguration.openshift.io" || read.Kind != "KubeletConfig" {
		return fmt.Errorf("key %s has a %s of %s, and must have a KubeletConfig of machineconfiguration.openshift.io/v1", v1beta1.ConfigKey, cmp.Or(read.Kind, "manifest without kind"), cmp.Or(read.APIVersion, "no apiVersion"))
	}
	return nil
}

// Succeeded reports whether a copy that none of the sources wants has a successor among them: another KubeletConfig of its
// pool, which has at most one.
func Succeeded(copied metav1.Object, sources []corev1.ConfigMap) bool {
	pool := copied.GetLabels()[v1beta1.PoolLabel]
	return pool != "" && slices.ContainsFunc(sources, func(source corev1.ConfigMap) bool {
		return source.Labels[v1beta1.PoolLabel] == pool && source.Name != copied.GetName()
	})
}

// Node is a hosted Node.
type Node struct {
	UID              types.UID
	Name, ProviderID string
	// Pool is the value of its label PoolLabel; Labelled is whether it has that.
	Pool     string
	Labelled bool
}

// Unrecorded says of Nodes when a look first saw that they have the label of a pool and that no record names them. It is
// lost with the process; then they keep the label so much longer.
type Unrecorded map[types.UID]time.Time

// Labelling says what the labels of Nodes must become.
type Labelling struct {
	// Set has the pools of Nodes whose label is another one; empty removes it.
	Set map[string]string
	// Unrecorded is for the next look, which is due at Again; the zero time is when something happens.
	Unrecorded Unrecorded
	Again      time.Time
	Problems   []error
}

// Label decides the labels of all hosted Nodes. Records are all ConfigMaps with NodesLabel, of a live list. A Node that no
// record names keeps its label for the patience: a record may be missing for a moment.
func Label(records []corev1.ConfigMap, nodes []Node, unrecorded Unrecorded, now time.Time, patience time.Duration) Labelling {
	l := Labelling{Set: map[string]string{}, Unrecorded: Unrecorded{}}
	type record struct{ pool, providerID, in string }
	recorded := map[string][]record{}
	for _, r := range records {
		pool := r.Labels[v1beta1.PoolLabel]
		if pool == "" {
			l.Problems = append(l.Problems, fmt.Errorf("ConfigMap %s/%s records nodes, and has no label %s that says of which NodePool", r.Namespace, r.Name, v1beta1.PoolLabel))
			continue
		}
		for name, providerID := range r.Data {
			recorded[name] = append(recorded[name], record{pool, strings.TrimSpace(providerID), r.Name})
		}
	}
	for _, node := range nodes {
		of := recorded[node.Name]
		slices.SortFunc(of, func(a, b record) int { return cmp.Compare(a.in, b.in) })
		if at := slices.IndexFunc(of, func(r record) bool { return r.pool != of[0].pool }); at >= 0 {
			l.Problems = append(l.Problems, fmt.Errorf("Node %s keeps its label: ConfigMap %s records it for NodePool %s, and ConfigMap %s for NodePool %s; remove one", node.Name, of[0].in, of[0].pool, of[at].in, of[at].pool))
			continue
		}
		at := slices.IndexFunc(of, func(r record) bool { return r.providerID == "" || r.providerID == node.ProviderID })
		switch {
		case at >= 0:
			if !node.Labelled || node.Pool != of[at].pool {
				l.Set[node.Name] = of[at].pool
			}
			continue
		case len(of) > 0 && node.ProviderID != "":
			l.Problems = append(l.Problems, fmt.Errorf("Node %s gets no pool: its spec.providerID is %s, and ConfigMap %s records %s", node.Name, node.ProviderID, of[0].in, of[0].providerID))
		}
		if !node.Labelled {
			continue
		}
		since, known := unrecorded[node.UID]
		if !known {
			since = now
		}
		l.Unrecorded[node.UID] = since // also once it is due: the write may fail
		if known && now.Sub(since) >= patience {
			l.Set[node.Name] = ""
			continue
		}
		if due := since.Add(patience); l.Again.IsZero() || due.Before(l.Again) {
			l.Again = due
		}
	}
	return l
}
