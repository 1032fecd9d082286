// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/manifest"
)

// maxReferences is how many ConfigMaps each of spec.tuningConfig and spec.config may name.
const maxReferences = 10

// maxCopy is how many bytes a copy may have; kube-apiserver takes ConfigMaps of 1 MiB, names and labels included
// (upstream, pkg/apis/core, MaxSecretSize).
const maxCopy = 1<<20 - 1<<12

// Pool is a NodePool with what it refers to.
type Pool struct {
	*v1beta1.NodePool
	// Sources are the ConfigMaps of its namespace that were found, of those that its spec names.
	Sources map[string]*corev1.ConfigMap
	// Paused means that everything of the pool stays as it is, its conditions included.
	Paused bool
}

func (p Pool) key() string { return p.Namespace + "/" + p.Name }

// Standing is a ConfigMap that is in the control plane's namespace.
type Standing struct {
	Name                string
	Labels, Annotations map[string]string
	// Ours means that this companion has made it, whatever else it has.
	Ours bool
}

// Decision says what a control plane's namespace must have.
type Decision struct {
	// Copies are the ConfigMaps of the pools that can be used.
	Copies []*corev1.ConfigMap
	// Verdicts are those of the pools that are not paused.
	Verdicts map[types.NamespacedName]Verdict
	// Configurations are those of the pools that can be used.
	Configurations map[types.NamespacedName]Configuration

	pools map[string]bool // whether what is not in Copies may go
}

// Verdict is what the conditions of a pool say.
type Verdict struct {
	Tuning, Config Finding
}

// Usable reports whether the pool's copies are what its spec says.
func (v Verdict) Usable() bool { return v.Tuning.Valid && v.Config.Valid }

// Finding is about one of spec.tuningConfig and spec.config.
type Finding struct {
	Valid   bool
	Reason  string
	Message string
}

// Gone reports of a copy that is not in Copies whether it can go: its pool is gone, or asks for other copies. What belongs to
// a pool that cannot be used now, or is paused, stays.
func (d Decision) Gone(copied Standing) bool {
	if key := copied.Annotations[v1beta1.PoolLabel]; key != "" {
		settled, exists := d.pools[key]
		return !exists || settled
	}
	// Somebody has removed the annotation. The label has the name alone.
	for key, settled := range d.pools {
		if strings.HasSuffix(key, "/"+copied.Labels[v1beta1.PoolLabel]) && !settled {
			return false
		}
	}
	return true
}

// References returns the names of the ConfigMaps that a NodePool names, each once, but not more of a field than it takes.
func References(pool *v1beta1.NodePool) (names []string) {
	for _, references := range [][]corev1.LocalObjectReference{pool.Spec.TuningConfig, pool.Spec.Config} {
		if len(references) > maxReferences {
			continue // they are refused without a look at them
		}
		for _, reference := range references {
			if len(invalidName(reference.Name)) == 0 && !slices.Contains(names, reference.Name) {
				names = append(names, reference.Name)
			}
		}
	}
	return names
}

// invalidName says why no ConfigMap can have a name.
func invalidName(name string) []string { return validation.IsDNS1123Subdomain(name) }

// Takes reports whether what stands where one of Copies must be is that copy, perhaps one that another version wrote.
func (Decision) Takes(copied *corev1.ConfigMap, standing Standing) bool {
	for _, kind := range []string{v1beta1.TunedConfigLabel, v1beta1.PerformanceProfileLabel, v1beta1.KubeletConfigLabel} {
		if _, ok := copied.Labels[kind]; ok {
			return belongs(standing, kind, copied.Annotations[v1beta1.PoolLabel], copied.Labels[v1beta1.PoolLabel])
		}
	}
	return false
}

// Namespace is a control plane's.
type Namespace struct {
	Name string
	// HostedCluster is the value of its HostedClusterAnnotation.
	HostedCluster string
	// Missing means that nothing can be created in it now.
	Missing bool
}

// isOf reports whether the namespace is that of a pool's cluster, or may become it.
func (n Namespace) isOf(pool Pool) bool {
	return n.Missing || n.HostedCluster == pool.Namespace+"/"+pool.Spec.ClusterName
}

// Decide decides for all NodePools of one control plane's namespace. The pools and their sources must have been read live:
// what they do not ask for is deleted. Standing is what is in that namespace.
func Decide(namespace Namespace, pools []Pool, standing []Standing) Decision {
	d := Decision{Verdicts: map[types.NamespacedName]Verdict{}, Configurations: map[types.NamespacedName]Configuration{}, pools: map[string]bool{}}
	there := map[string]Standing{}
	for _, s := range standing {
		there[s.Name] = s
	}
	views := map[string]*view{}
	claims := map[string][]*wanted{}
	for _, pool := range pools {
		d.pools[pool.key()] = false
		if pool.Paused {
			continue
		}
		v := &view{Pool: pool}
		views[pool.key()] = v
		v.judge(namespace.Name, there)
		if !namespace.isOf(pool) {
			continue // it gets nothing there, and stands in nobody's way
		}
		for _, w := range v.wants {
			claims[w.copied.Name] = append(claims[w.copied.Name], w)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		wanting := claims[name]
		s, exists := there[name]
		// If it is that of one that wants it, the others' names are what is wrong.
		taken := exists && !slices.ContainsFunc(wanting, func(w *wanted) bool { return belongs(s, w.kind, w.pool.key(), w.pool.Name) })
		for _, w := range wanting {
			if taken {
				w.conflict("ConfigMap %s/%s, where the copy of %s must be, is %s; rename %s, or remove that ConfigMap", namespace.Name, name, w.of, ownerOf(s), w.rename)
			}
			for _, other := range wanting {
				if other != w {
					w.conflict("ConfigMap %s/%s would be the copy of %s, and that of %s of NodePool %s; rename one of them", namespace.Name, name, w.of, other.of, other.pool.key())
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(views)) {
		v := views[key]
		verdict := v.verdict(namespace)
		d.Verdicts[types.NamespacedName{Namespace: v.Namespace, Name: v.Name}] = verdict
		if !verdict.Usable() {
			continue
		}
		d.pools[key] = true
		for _, w := range v.wants {
			d.Copies = append(d.Copies, w.copied)
		}
		d.Configurations[types.NamespacedName{Namespace: v.Namespace, Name: v.Name}] = v.configuration()
	}
	return d
}

// belongs reports whether what stands where a copy of a kind must be is that copy of a pool, perhaps one that another version
// wrote. The pool is NAMESPACE/NAME, and its name.
func belongs(s Standing, kind, pool, name string) bool {
	if key := s.Annotations[v1beta1.PoolLabel]; key != "" {
		return key == pool
	}
	if s.Ours {
		return true
	}
	_, ok := s.Labels[kind]
	return ok && s.Labels[v1beta1.PoolLabel] == name
}

func ownerOf(s Standing) string {
	if key := s.Annotations[v1beta1.PoolLabel]; key != "" {
		return "NodePool " + key + "'s"
	}
	if name := s.Labels[v1beta1.PoolLabel]; name != "" {
		return "that of another NodePool " + name
	}
	return "somebody else's"
}

// wanted is a copy that a pool asks for.
type wanted struct {
	pool   *view
	copied *corev1.ConfigMap
	// kind is the label of copies of this kind; of is whose copy it is, and rename what could have another name.
	kind, of, rename string
}

func (w *wanted) conflict(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if w.kind != v1beta1.KubeletConfigLabel {
		w.pool.tuningConflicts = append(w.pool.tuningConflicts, text)
	} else {
		w.pool.configConflicts = append(w.pool.configConflicts, text)
	}
}

// view is what is seen of a pool.
type view struct {
	Pool
	wants                            []*wanted
	tuning, config                   []string // what is wrong
	tuningConflicts, configConflicts []string
	// unused are manifests of which nothing is made, late node labels that new nodes lack, and never Tuneds whose profiles no node gets,
	// since it never boots a second time.
	unused, late, never []string
	// performance is the PerformanceProfile, if there is one that is valid; machineConfigs are those of spec.config.
	performance    *manifest.Manifest
	machineConfigs []machineConfig
}

// configuration is what the pool's nodes are to be like.
func (v *view) configuration() Configuration {
	c := Configuration{machineConfigs: v.machineConfigs}
	var tuneds, performance string
	for _, w := range v.wants {
		switch w.kind {
		case v1beta1.TunedConfigLabel:
			tuneds = w.copied.Data[v1beta1.TuningKey]
		case v1beta1.PerformanceProfileLabel:
			performance = w.copied.Data[v1beta1.TuningKey]
		default:
			c.kubeletConfig = w.copied.Data[v1beta1.ConfigKey]
		}
	}
	if tuneds+performance != "" {
		c.Input = v1beta1.InputHash(tuneds, performance)
	}
	return c
}

// judge fills in what is wrong with a pool, and what it asks for.
func (v *view) judge(namespace string, there map[string]Standing) {
	if problems := v.names(namespace); problems != nil {
		v.tuning, v.config = problems, problems
		return
	}
	manifests, problems := v.manifests("tuningConfig", v1beta1.TuningKey, v.Spec.TuningConfig)
	tuneds := v.judgeTuning(manifests, &problems)
	v.tuning = problems
	if len(tuneds) > 0 {
		w := v.want(v1beta1.TunedConfigMapName(v.Name), v1beta1.TunedConfigLabel, "true", v1beta1.TuningKey, "spec.tuningConfig", "the NodePool", tuneds)
		if size := len(w.copied.Data[v1beta1.TuningKey]); size > maxCopy {
			v.tuning = append(v.tuning, fmt.Sprintf("spec.tuningConfig: its manifests have %d bytes, and a ConfigMap takes %d; remove some", size, maxCopy))
		}
	}
	if v.performance != nil {
		v.want(v1beta1.PerformanceProfileConfigMapName(v.Name), v1beta1.PerformanceProfileLabel, "true", v1beta1.TuningKey, "spec.tuningConfig", "the NodePool", []manifest.Manifest{*v.performance})
	}

	manifests, problems = v.manifests("config", v1beta1.ConfigKey, v.Spec.Config)
	kubelets := v.judgeConfig(manifests, &problems, there)
	v.config = problems
	if len(kubelets) == 1 {
		source := v.source(kubelets[0])
		v.want(ShortenName(source, v.Name), v1beta1.KubeletConfigLabel, "", v1beta1.ConfigKey, "ConfigMap "+kubelets[0].At.ConfigMap, "ConfigMap "+kubelets[0].At.ConfigMap, kubelets)
	}
}

// names returns what is wrong with the names of a pool and of its cluster.
func (v *view) names(namespace string) (problems []string) {
	if len(v.Name) > maxName {
		problems = append(problems, fmt.Sprintf("metadata.name %s has %d characters, and a label takes %d: make the pool again with a shorter name", v.Name, len(v.Name), maxName))
	}
	if invalid := validation.IsDNS1123Label(namespace); len(invalid) > 0 {
		problems = append(problems, fmt.Sprintf("spec.clusterName %s: the control plane's namespace %s cannot exist: %s", v.Spec.ClusterName, namespace, strings.Join(invalid, "; ")))
	}
	return problems
}

// manifests returns those of all ConfigMaps that a field of the spec names.
func (v *view) manifests(field, key string, references []corev1.LocalObjectReference) (manifests []manifest.Manifest, problems []string) {
	if len(references) > maxReferences {
		return nil, []string{fmt.Sprintf("spec.%s names %d ConfigMaps, and takes %d; put several manifests into one", field, len(references), maxReferences)}
	}
	seen := map[string]bool{}
	for i, reference := range references {
		switch {
		case len(invalidName(reference.Name)) > 0:
			problems = append(problems, fmt.Sprintf("spec.%s[%d].name is %q: %s", field, i, reference.Name, strings.Join(invalidName(reference.Name), "; ")))
			continue
		case seen[reference.Name]:
			problems = append(problems, fmt.Sprintf("spec.%s[%d] names ConfigMap %s a second time; remove it there", field, i, reference.Name))
			continue
		}
		seen[reference.Name] = true
		name := v.Namespace + "/" + reference.Name
		source, found := v.Sources[reference.Name]
		if !found {
			problems = append(problems, fmt.Sprintf("spec.%s[%d]: there is no ConfigMap %s; create it, or remove it there", field, i, name))
			continue
		}
		value, has := source.Data[key]
		if !has {
			problems = append(problems, manifest.Problem{ConfigMap: name, Text: fmt.Sprintf("it has no key %s, and spec.%s[%d] names it; its keys are %s", key, field, i, strings.Join(keysOf(source), ", "))}.String())
			continue
		}
		read, wrong := manifest.Split(name, key, value)
		if len(read)+len(wrong) == 0 {
			wrong = []manifest.Problem{{ConfigMap: name, Key: key, Text: fmt.Sprintf("it has no manifest; add one, or remove spec.%s[%d]", field, i)}}
		}
		for _, problem := range wrong {
			problems = append(problems, problem.String())
		}
		manifests = append(manifests, read...)
	}
	return manifests, problems
}

func keysOf(source *corev1.ConfigMap) []string {
	keys := slices.Sorted(maps.Keys(source.Data))
	for key := range source.BinaryData {
		keys = append(keys, key+" (binary)")
	}
	if len(keys) == 0 {
		return []string{"none"}
	}
	slices.Sort(keys)
	return keys
}

// judgeTuning returns the Tuneds, in the order of their names, and adds what is wrong.
func (v *view) judgeTuning(manifests []manifest.Manifest, problems *[]string) (tuneds []manifest.Manifest) {
	add := func(more ...manifest.Problem) {
		for _, problem := range more {
			*problems = append(*problems, problem.String())
		}
	}
	names := map[string]manifest.Manifest{}
	type profile struct {
		data string
		from manifest.Manifest
	}
	profiles := map[string]profile{}
	var performance []manifest.Manifest
	for _, m := range manifests {
		if unknown := unknown(m, "tuningConfig", tuningKinds); unknown != nil {
			add(unknown...)
			continue
		}
		if m.Is(manifest.PerformanceProfileKind) {
			if len(performance) > 0 {
				add(m.Problem(0, "a pool takes one PerformanceProfile, and %s is there already; remove one of them", performance[0]))
			}
			performance = append(performance, m)
			rendered, wrong := m.PerformanceProfile()
			add(wrong...)
			if wrong == nil {
				if other, twice := profiles[rendered.Tuned]; twice {
					add(other.from.Problem(0, "the profile %s of Tuned %s has the name of the one that %s makes; rename it", rendered.Tuned, other.from.Name, m))
				}
				v.performance = &m
				profiles[rendered.Tuned] = profile{rendered.TunedText, m}
			}
			continue
		}
		t, wrong := readTuned(m)
		if add(wrong...); wrong != nil {
			continue
		}
		if other, twice := names[m.Name]; twice {
			add(m.Problem(0, "the Tuned %s is also in ConfigMap %s, document %d; rename or remove one of them", m.Name, other.At.ConfigMap, other.At.Document))
			continue
		}
		names[m.Name] = m
		for _, p := range t.Spec.Profile {
			if other, twice := profiles[p.Name]; twice && other.data != p.Data {
				add(m.Problem(0, "the profile %s of Tuned %s is another one than that of %s %s in ConfigMap %s, document %d; rename one of them", p.Name, m.Name, other.from.Kind, other.from.Name, other.from.At.ConfigMap, other.from.At.Document))
				continue
			}
			profiles[p.Name] = profile{p.Data, m}
		}
		tuneds = append(tuneds, m)
		if v.Spec.Management.UpgradeType == v1beta1.UpgradeTypeReplace {
			v.late = append(v.late, v.lateLabels(m.Name, t)...)
			if t.Annotations[tunedv1.DeferredAnnotation] == tunedv1.DeferAlways {
				v.never = append(v.never, m.Name)
			}
		}
	}
	slices.SortFunc(tuneds, func(a, b manifest.Manifest) int { return cmp.Compare(a.Name, b.Name) })
	return tuneds
}

// lateLabels names node labels by which a Tuned chooses a profile, and that a node which replaces another one does not have
// when it joins: the person who put them on the old one has to do so again.
func (v *view) lateLabels(name string, t *tunedv1.Tuned) (late []string) {
	var look func([]tunedv1.TunedMatch)
	look = func(matches []tunedv1.TunedMatch) {
		for _, match := range matches {
			label := match.Label
			_, has := v.Spec.NodeLabels[label]
			known := has || label == v1beta1.PoolLabel || strings.HasPrefix(label, "kubernetes.io/") || strings.HasPrefix(label, "node.kubernetes.io/")
			if text := fmt.Sprintf("%s of Tuned %s", label, name); match.Type != tunedv1.MatchPod && !known && !slices.Contains(late, text) {
				late = append(late, text)
			}
			look(match.Match)
		}
	}
	for _, recommend := range t.Spec.Recommend {
		look(recommend.Match)
	}
	return late
}

// judgeConfig returns the KubeletConfigs, and adds what is wrong. There is at most one if nothing is.
func (v *view) judgeConfig(manifests []manifest.Manifest, problems *[]string, there map[string]Standing) (kubelets []manifest.Manifest) {
	for _, m := range manifests {
		wrong := unknown(m, "config", configKinds)
		switch {
		case wrong != nil:
		case m.Is(kubeletConfigKind):
			wrong = m.Read(&kubeletConfig{})
			kubelets = append(kubelets, m)
			if v.performance != nil {
				wrong = append(wrong, m.Problem(0, "a pool takes one KubeletConfig, and %s makes one: remove %s, or the ConfigMap from spec.config", v.performance, m.Name))
			}
		case m.Is(machineConfigKind):
			read, err := readMachineConfig(m.Text)
			if err != nil {
				wrong = []manifest.Problem{m.Problem(0, "%v", err)}
			}
			if slices.ContainsFunc(v.machineConfigs, func(other machineConfig) bool { return other.name == m.Name }) || m.Name == v1beta1.MachineConfigName(v.Name) {
				wrong = append(wrong, m.Problem(0, "the pool has another MachineConfig %s; rename this one", m.Name))
			}
			v.machineConfigs = append(v.machineConfigs, read)
		default:
			v.unused = append(v.unused, m.String())
		}
		for _, problem := range wrong {
			*problems = append(*problems, problem.String())
		}
	}
	if len(kubelets) < 2 {
		return kubelets
	}
	// The one that is in use stays.
	keep := 0
	for i, m := range kubelets {
		if s, exists := there[ShortenName(v.source(m), v.Name)]; exists && s.Annotations[v1beta1.PoolLabel] == v.key() {
			keep = i
			break
		}
	}
	for i, m := range kubelets {
		if i != keep {
			*problems = append(*problems, m.Problem(0, "a pool takes one KubeletConfig, and %s is there already: remove %s, or the ConfigMap from spec.config", kubelets[keep], m.Name).String())
		}
	}
	return kubelets
}

// source returns the name of the ConfigMap of a manifest.
func (v *view) source(m manifest.Manifest) string {
	return strings.TrimPrefix(m.At.ConfigMap, v.Namespace+"/")
}

// want adds a copy.
func (v *view) want(name, kind, value, key, of, rename string, manifests []manifest.Manifest) *wanted {
	var texts, sources []string
	for _, m := range manifests {
		texts = append(texts, m.Text+"\n")
		if kind == v1beta1.TunedConfigLabel {
			sources = append(sources, m.Name+"="+v.source(m))
		} else {
			sources = append(sources, v.source(m))
		}
	}
	w := &wanted{pool: v, kind: kind, of: of, rename: rename, copied: &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   v1beta1.ControlPlaneNamespace(v.Namespace, v.Spec.ClusterName),
			Name:        name,
			Labels:      map[string]string{kind: value, v1beta1.PoolLabel: v.Name},
			Annotations: map[string]string{v1beta1.PoolLabel: v.key(), v1beta1.SourcesAnnotation: strings.Join(sources, ",")},
		},
		Data: map[string]string{key: strings.Join(texts, "---\n")},
	}}
	v.wants = append(v.wants, w)
	return w
}

// verdict says what the conditions of a pool must be.
func (v *view) verdict(namespace Namespace) Verdict {
	finding := func(problems, conflicts []string) Finding {
		switch {
		case len(problems) > 0:
			return Finding{Reason: v1beta1.ReasonValidationFailed, Message: several(problems)}
		case len(conflicts) > 0:
			return Finding{Reason: v1beta1.ReasonConflict, Message: several(conflicts)}
		}
		return Finding{Valid: true, Reason: v1beta1.ReasonAsExpected}
	}
	verdict := Verdict{Tuning: finding(v.tuning, v.tuningConflicts), Config: finding(v.config, v.configConflicts)}
	for _, half := range []struct {
		is    *Finding
		other Finding
		field string
	}{{&verdict.Tuning, verdict.Config, "spec.config"}, {&verdict.Config, verdict.Tuning, "spec.tuningConfig"}} {
		if half.is.Valid && !half.other.Valid {
			half.is.Reason = v1beta1.ReasonPoolConfigurationInvalid
			half.is.Message = "nothing of the pool changes until " + half.field + " is valid as well"
		}
	}
	if cluster := v.Namespace + "/" + v.Spec.ClusterName; verdict.Usable() && !namespace.isOf(v.Pool) {
		waits := Finding{Reason: v1beta1.ReasonNotControlPlane, Message: fmt.Sprintf("nothing is copied: namespace %s is the control plane of %s by its annotation %s, and not of %s; annotate it if it is", namespace.Name, cmp.Or(namespace.HostedCluster, "no hosted cluster"), v1beta1.HostedClusterAnnotation, cluster)}
		return Verdict{waits, waits}
	}
	if verdict.Usable() && namespace.Missing {
		waits := Finding{Valid: true, Reason: v1beta1.ReasonControlPlaneNamespaceMissing, Message: fmt.Sprintf("valid, and copied once the control plane's namespace %s is there", namespace.Name)}
		return Verdict{waits, waits}
	}
	var replaced []string
	if len(v.late) > 0 {
		replaced = append(replaced, "a new node has its profile by these labels only once somebody has put them on it: "+strings.Join(v.late, ", ")+"; add them to spec.nodeLabels")
	}
	if len(v.never) > 0 {
		replaced = append(replaced, fmt.Sprintf("a node never boots a second time, which the annotation %s=%s of these Tuneds waits for: %s; remove it", tunedv1.DeferredAnnotation, tunedv1.DeferAlways, strings.Join(v.never, ", ")))
	}
	if verdict.Usable() && len(replaced) > 0 {
		verdict.Tuning.Message = "valid, but spec.management.upgradeType is Replace, and " + strings.Join(replaced, "; and ")
	}
	if verdict.Usable() && len(v.unused) > 0 {
		verdict.Config.Message = "valid, but nothing of this project uses " + strings.Join(v.unused, ", ")
	}
	return verdict
}

// several joins problems to one message that a condition takes.
func several(problems []string) string {
	const most, longest = 10, 2048
	var texts []string
	for _, problem := range problems {
		texts = append(texts, untrusted.Abbreviate(problem, longest))
	}
	return strings.Join(untrusted.First(texts, most), "; ")
}

// PausedUntil reports whether a value of spec.pausedUntil pauses a pool, and when that ends; the zero time is not by
// itself. What is neither true nor false nor a time pauses nothing (HyperShift, support/util, ProcessPausedUntilField).
func PausedUntil(value *string, now time.Time) (paused bool, until time.Time) {
	if value == nil {
		return false, time.Time{}
	}
	if until, err := time.Parse(time.RFC3339, *value); err == nil {
		return until.After(now), until
	}
	always, _ := strconv.ParseBool(*value)
	return always, time.Time{}
}
