// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/e2e/internal/rig"
)

var (
	checkout = flag.String("checkout", "", "the checkout whose make installs the companions")
	previous = flag.String("previous", "", "a checkout of another version, which is installed first")
)

// A lifecycle is what a companion does while it is upgraded.
type lifecycle struct {
	companion string
	// before is what the cluster has before the companion comes; nil is nothing.
	before func(*admin)
	// begin leaves something under way, with the version before. The function that it returns is called with this
	// one: it waits until that has ended as it must.
	begin func(*admin) (end func())
	// hosted means that the companion also works in a hosted cluster. Here that is the same one.
	hosted bool
	// internal means that no user gets the companion, so no version has it: the version before is this one, built differently.
	internal bool
}

// manifests is the directory of the companion's, in a checkout.
func (l lifecycle) manifests(checkout string) string {
	if l.internal {
		return filepath.Join(checkout, "operators/internal", l.companion, "deploy")
	}
	return filepath.Join(checkout, "operators/deploy", l.companion)
}

// An administrator installs each companion with make, brings another version in the middle of its work, and removes it.
func TestAnAdministratorInstallsUpgradesAndRemovesEachCompanion(t *testing.T) {
	if *previous == "" {
		t.Skip("there is no -previous; make operators-lifecycle names it")
	}
	if !cluster.Exists() {
		if err := cluster.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	node := thisNode()
	supervise(t, cluster.Kubelet)
	// Of its own ServiceAccounts, this one comes last.
	node.Call(t, "wait", "--for=create", "--timeout=2m", "--namespace=kube-system", "serviceaccount/ttl-after-finished-controller")
	awaitNamespaces(t, node, "default", "kube-node-lease", "kube-public", "kube-system")
	node.Call(t, "wait", "--for=create", "--timeout=2m", "--namespace=kube-node-lease", "lease/"+node.Name) // the kubelet's
	for _, of := range []lifecycle{
		{companion: "cpupolicy", begin: aNodeIsDrained},
		{companion: "numaresources", begin: aNodeIsReported},
		{companion: "workloadclasses", begin: podsAreClassified},
		{companion: "nodepool", before: managementSide, begin: aPoolIsCopied},
		{companion: "hostedconfig", before: managementSide, begin: aKubeletConfigIsCopied, hosted: true},
		{companion: "tuning", before: managementSide, begin: aPoolIsTuned, hosted: true},
		{companion: "example", begin: aNodeIsTold, hosted: true, internal: true},
	} {
		t.Run(of.companion, func(t *testing.T) {
			a := &admin{T: t, Node: node, of: of, namespace: "partition-" + of.companion}
			t.Cleanup(func() {
				if t.Failed() {
					node.Tell(t)
				}
			})
			if of.before != nil {
				of.before(a)
			}
			was := a.everything()
			if of.internal {
				a.install(*checkout, "GOFLAGS=-tags=before") // which the programs record
			} else {
				a.install(*previous)
			}
			first := a.image()
			end := of.begin(a)
			a.install(*checkout)
			if now := a.image(); now == first {
				t.Errorf("both versions have the image %s", now)
			}
			end()
			a.uninstall()
			a.WaitFor(t, a.Limit, "nothing is left", func() error {
				is := a.everything()
				var diff []string
				for line := range is {
					if !was[line] {
						diff = append(diff, "left: "+line)
					}
				}
				for line := range was {
					if !is[line] {
						diff = append(diff, "gone: "+line)
					}
				}
				if len(diff) > 0 {
					slices.Sort(diff)
					return fmt.Errorf("%s", strings.Join(diff, "\n"))
				}
				return nil
			})
		})
	}
}

// awaitNamespaces waits for what kube-controller-manager makes in each namespace: else it would be taken for a companion's.
func awaitNamespaces(t *testing.T, node *rig.Node, names ...string) {
	t.Helper()
	for _, name := range names {
		for _, made := range []string{"serviceaccount/default", "configmap/kube-root-ca.crt"} {
			node.Call(t, "wait", "--for=create", "--timeout=2m", "--namespace="+name, made)
		}
	}
}

// admin is who installs a companion.
type admin struct {
	*testing.T
	*rig.Node
	of        lifecycle
	namespace string
}

// kubectl runs kubectl, which must succeed.
func (a *admin) kubectl(arguments ...string) string {
	a.Helper()
	return a.Call(a.T, arguments...)
}

// apply applies a manifest.
func (a *admin) apply(manifest string) {
	a.Helper()
	if output, err := a.Try(a.T, manifest, "apply", "--server-side", "--force-conflicts", "--filename=-"); err != nil {
		a.Fatalf("%v: %s\n%s", err, output, manifest)
	}
}

// make runs make in a checkout.
func (a *admin) make(dir, target string, variables ...string) {
	a.Helper()
	command := exec.CommandContext(a.Context(), "make", append([]string{"--no-print-directory", "--directory=" + dir, target, "OPERATOR=" + a.of.companion, "KUBECTL=" + a.Kubectl}, variables...)...)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !slices.Contains([]string{"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "GOFLAGS", "CGO_ENABLED"}, name) {
			command.Env = append(command.Env, variable)
		}
	}
	command.Env = append(command.Env, "KUBECONFIG="+a.Kubeconfig)
	began := time.Now()
	if output, err := command.CombinedOutput(); err != nil {
		a.Fatalf("%s: %v\n%s", command, err, output)
	}
	a.Logf("make %s in %s: %s", target, dir, time.Since(began).Round(time.Second))
}

// install has make install a version of the companion.
func (a *admin) install(dir string, variables ...string) {
	a.Helper()
	if a.of.hosted {
		a.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize="+filepath.Join(a.of.manifests(dir), "hosted"))
		a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + a.namespace + "}\n")
		a.apply(a.kubectl("create", "secret", "generic", "hosted-kubeconfig", "--namespace="+a.namespace, "--from-file=kubeconfig="+a.identity(), "--dry-run=client", "--output=yaml"))
	}
	a.make(dir, "install", variables...)
}

// identity returns a kubeconfig of the companion's identity in the hosted cluster, for a pod.
func (a *admin) identity() string {
	a.Helper()
	path := filepath.Join(a.TempDir(), "kubeconfig")
	token := strings.TrimSpace(a.kubectl("create", "token", "--namespace="+a.namespace, a.of.companion))
	// There is no DNS here.
	address := a.kubectl("get", "service", "kubernetes", "--namespace=default", "--output=jsonpath={.spec.clusterIP}")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: hosted, cluster: {server: "https://%s", certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt}}]
users: [{name: hosted, user: {token: %s}}]
contexts: [{name: hosted, context: {cluster: hosted, user: hosted}}]
current-context: hosted
`, address, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		a.Fatal(err)
	}
	return path
}

// uninstall has make remove the companion, with the controller already gone.
func (a *admin) uninstall() {
	a.Helper()
	a.kubectl("scale", "--namespace="+a.namespace, "deployment", "--all", "--replicas=0")
	a.kubectl("delete", "--namespace="+a.namespace, "pods", "--all", "--force", "--grace-period=0")
	var more []string
	if a.of.hosted {
		more = append(more, "HOSTED_KUBECONFIG="+a.Kubeconfig)
	}
	a.make(*checkout, "uninstall", more...)
}

// image is that of the controllers, and the only one that runs.
func (a *admin) image() string {
	a.Helper()
	return a.kubectl("get", "--namespace="+a.namespace, "deployment", "partition-controller", "--output=jsonpath={.spec.template.spec.containers[0].image}")
}

// passing are kinds whose objects come and go by themselves.
var passing = []string{"events", "events.events.k8s.io", "componentstatuses"}

// everything is each object of the cluster, and what a Node has.
func (a *admin) everything() map[string]bool {
	a.Helper()
	all := map[string]bool{}
	for kind := range strings.FieldsSeq(a.kubectl("api-resources", "--verbs=list", "--output=name")) {
		if slices.Contains(passing, kind) {
			continue
		}
		output, err := a.Try(a.T, "", "get", kind, "--all-namespaces", "--ignore-not-found", `--output=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
		if err != nil {
			continue // a kind that has just gone
		}
		for name := range strings.FieldsSeq(output) {
			all[kind+" "+name] = true
		}
	}
	object := a.Object(a.T)
	for kind, keys := range map[string]map[string]string{"label": object.Labels, "annotation": object.Annotations} {
		for key := range keys {
			// kube-controller-manager's, which comes when it likes.
			if key != "node.alpha.kubernetes.io/ttl" {
				all[kind+" of the node "+key] = true
			}
		}
	}
	for _, taint := range object.Spec.Taints {
		all["taint "+taint.Key] = true
	}
	if object.Spec.Unschedulable {
		all["cordon"] = true
	}
	return all
}

// settle adds a line to the companion's settings, as an administrator's own kustomization would.
func (a *admin) settle(line string) {
	a.Helper()
	name := a.kubectl("get", "--namespace="+a.namespace, "deployment", "partition-controller", `--output=jsonpath={.spec.template.spec.volumes[?(@.name=="config")].configMap.name}`)
	configMap, err := a.Client.CoreV1().ConfigMaps(a.namespace).Get(a.Context(), name, metav1.GetOptions{})
	if err != nil {
		a.Fatal(err)
	}
	const settings = "\nsettings:\n"
	if text := configMap.Data["config.yaml"]; !strings.Contains(text, settings) {
		a.Fatalf("the configuration has no settings: %s", text)
	}
	configMap.Data["config.yaml"] = strings.Replace(configMap.Data["config.yaml"], settings, settings+"  "+line+"\n", 1)
	if _, err := a.Client.CoreV1().ConfigMaps(a.namespace).Update(a.Context(), configMap, metav1.UpdateOptions{}); err != nil {
		a.Fatal(err)
	}
	a.kubectl("rollout", "restart", "--namespace="+a.namespace, "deployment")
	a.kubectl("rollout", "status", "--namespace="+a.namespace, "deployment", "--timeout=2m")
}

// await waits for what kubectl wait knows.
func (a *admin) await(condition string, arguments ...string) {
	a.Helper()
	a.kubectl(append([]string{"wait", "--timeout=" + a.Limit.String(), "--for=" + condition}, arguments...)...)
}

// aNodeIsDrained leaves the switch of a node of the control plane waiting for a pod that a disruption budget keeps: the version
// before has its lock, its claim and its cordon, and this one finishes the switch.
func aNodeIsDrained(a *admin) (end func()) {
	const role = "node-role.kubernetes.io/control-plane"
	a.kubectl("label", "node", a.Name, role+"=")
	a.Cleanup(func() {
		a.Client.CoreV1().Namespaces().Delete(context.WithoutCancel(a.Context()), rig.PodNamespace, metav1.DeleteOptions{})
	})
	// What it has observed with the driver that make install chooses, which needs systemd, is forgotten.
	a.kubectl("scale", "--namespace="+a.namespace, "deployment/partition-controller", "--replicas=0")
	a.kubectl("delete", "--namespace="+a.namespace, "pods", "--selector=app=partition-controller", "--force", "--grace-period=0")
	a.kubectl("delete", "--namespace="+a.namespace+"-agent", "jobs", "--all")
	a.kubectl("annotate", "node", a.Name, "cpupolicy.workload.openshift.io/observed-")
	a.settle("driver: command")
	a.kubectl("scale", "--namespace="+a.namespace, "deployment/partition-controller", "--replicas=1")
	a.kubectl("rollout", "status", "--namespace="+a.namespace, "deployment", "--timeout=2m")
	a.WaitFor(a.T, a.Limit, "the node is observed", func() error { return a.Labelled(a.T, "false") })
	a.CreateNamespace(a.T)
	kept := rig.Pod("kept", nil, "memory=16Mi", "")
	kept.Labels = map[string]string{"app": "kept"}
	controller := true
	a.kubectl("create", "configmap", "--namespace="+rig.PodNamespace, "owner")
	owner, err := a.Client.CoreV1().ConfigMaps(rig.PodNamespace).Get(a.Context(), "owner", metav1.GetOptions{})
	if err != nil {
		a.Fatal(err)
	}
	// Something would bring it back.
	kept.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: &controller}}
	a.StartPod(a.T, kept)
	a.apply("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: kept, namespace: " + rig.PodNamespace + "}\nspec: {minAvailable: 1, selector: {matchLabels: {app: kept}}}\n")
	a.apply("apiVersion: cpupolicy.workload.openshift.io/v1alpha1\nkind: CPUManagerPolicy\nmetadata: {name: lifecycle}\nspec: {nodes: {names: [" + a.Name + "]}, policy: static, cordon: true, drain: {}}\n")
	a.WaitFor(a.T, a.Limit, "the node is drained", func() error {
		if status := a.Object(a.T).Annotations[rig.StatusAnnotation]; !strings.Contains(status, `"running"`) || !a.Object(a.T).Spec.Unschedulable {
			return fmt.Errorf("its status is %s", status)
		}
		return nil
	})
	before := a.Object(a.T).Annotations
	return func() {
		a.settle("driver: command")
		const claim = "nodegroup.workload.openshift.io/claim"
		if after := a.Object(a.T); after.Annotations[claim] != before[claim] || before[claim] == "" || !after.Spec.Unschedulable {
			a.Errorf("the claim was %q, and is %q; the node is unschedulable: %t", before[claim], after.Annotations[claim], after.Spec.Unschedulable)
		}
		a.kubectl("delete", "poddisruptionbudget", "--namespace="+rig.PodNamespace, "kept")
		a.AwaitStatus(a.T, "complete")
		a.InForce(a.T, "static")
		a.WaitFor(a.T, a.Limit, "claim, cordon and locks are released", func() error {
			after := a.Object(a.T)
			locks := a.kubectl("get", "leases", "--all-namespaces", `--output=jsonpath={.items[*].metadata.annotations.nodegroup\.workload\.openshift\.io/holders}`)
			if after.Annotations[claim] != "" || after.Spec.Unschedulable || strings.TrimSpace(locks) != "" {
				return fmt.Errorf("claim %q, unschedulable %t, locks %s", after.Annotations[claim], after.Spec.Unschedulable, locks)
			}
			return nil
		})
		a.kubectl("delete", "cpumanagerpolicy", "lifecycle")
		a.Change(a.T, "none")
		a.kubectl("delete", "namespace", rig.PodNamespace)
		a.kubectl("label", "node", a.Name, role+"-")
	}
}

// aNodeIsReported has an exporter of the version before on the node, which this one replaces.
func aNodeIsReported(a *admin) (end func()) {
	a.apply("apiVersion: nodetopology.openshift.io/v1\nkind: NUMAResourcesOperator\nmetadata: {name: numaresourcesoperator}\nspec: {nodeGroups: [{nodeSelector: {matchLabels: {kubernetes.io/os: linux}}}]}\n")
	report := []string{"get", "noderesourcetopologies.topology.node.k8s.io", a.Name, "--output=jsonpath={.metadata.uid}"}
	var uid string
	a.WaitFor(a.T, a.Limit, "the node is reported", func() (err error) {
		uid, err = a.Try(a.T, "", report...)
		return err
	})
	images := func() string {
		return a.kubectl("get", "pods", "--all-namespaces", "--selector=app.kubernetes.io/name=numaresources", "--output=jsonpath={.items[*].spec.containers[*].image}")
	}
	before := images()
	return func() {
		a.WaitFor(a.T, a.Limit, "the exporter is of this version", func() error {
			sets := a.kubectl("get", "daemonsets", "--all-namespaces", `--output=jsonpath={range .items[*]}{.status.numberReady}/{.status.updatedNumberScheduled}/{.status.desiredNumberScheduled} {.spec.template.spec.containers[0].image}{"\n"}{end}`)
			for set := range strings.Lines(sets) {
				ready, image, _ := strings.Cut(strings.TrimSpace(set), " ")
				if ready == "1/1/1" && strings.Contains(image, "partition-node:") && !strings.Contains(before, image) {
					return nil
				}
			}
			return fmt.Errorf("the DaemonSets are %q, and the images were %q", sets, before)
		})
		if after := a.kubectl(report...); after != uid {
			a.Errorf("the report is another object, %s and not %s", after, uid)
		}
		a.kubectl("delete", "numaresourcesoperator", "numaresourcesoperator")
	}
}

// podsAreClassified has pods classified before and after.
func podsAreClassified(a *admin) (end func()) {
	const namespace = "ci-op-lifecycle"
	a.kubectl("create", "namespace", namespace)
	classified := func(name string) {
		a.Helper()
		pod := rig.Pod(name, nil, "cpu=1 memory=16Mi", "")
		pod.Namespace = namespace
		pod.Labels = map[string]string{"created-by-prow": "true"}
		a.WaitFor(a.T, a.Limit, "a pod is classified", func() error {
			made, err := a.Client.CoreV1().Pods(namespace).Create(a.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && made.Labels["ci-workload"] == "" {
				err = fmt.Errorf("its labels are %v", made.Labels)
			}
			return err
		})
	}
	classified("before")
	return func() {
		classified("after")
		a.kubectl("delete", "namespace", namespace)
	}
}

// managementSide makes this cluster a management cluster and its own hosted one.
func managementSide(a *admin) {
	a.kubectl("apply", "--server-side", "--force-conflicts", "--filename="+filepath.Join(*checkout, "operators/deploy/sample/management.yaml"))
	// hostedconfig leaves it, since others have it, too.
	a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: openshift-config-managed}\n")
	awaitNamespaces(a.T, a.Node, "clusters", "clusters-hosted", "openshift-config-managed")
}

// aPoolIsCopied has the configuration of a pool copied by the version before, and its change by this one.
func aPoolIsCopied(a *admin) (end func()) {
	sample := filepath.Join(*checkout, "operators/deploy/sample/nodepool.yaml")
	a.kubectl("apply", "--server-side", "--force-conflicts", "--filename="+sample)
	copied := []string{"--namespace=clusters-hosted", "configmap/tuned-pool-a"}
	a.await("create", copied...)
	text := func() string {
		return a.kubectl(append([]string{"get", "--output=jsonpath={.metadata.uid} {.data}"}, copied...)...)
	}
	uid, _, _ := strings.Cut(text(), " ")
	manifest := a.kubectl("get", "configmap", "--namespace=clusters", "sysctls", "--output=yaml")
	// The version before may be stopped in the middle of this.
	if output, err := a.Try(a.T, strings.ReplaceAll(manifest, "burst=11", "burst=12"), "replace", "--filename=-"); err != nil {
		a.Fatal(output, err)
	}
	return func() {
		a.WaitFor(a.T, a.Limit, "the change is copied", func() error {
			if got := text(); !strings.Contains(got, "burst=12") || !strings.HasPrefix(got, uid+" ") {
				return fmt.Errorf("it is %s, and was %s", got, uid)
			}
			return nil
		})
		a.kubectl("delete", "--filename="+sample)
		a.await("delete", copied...)
	}
}

// source writes what nodepool would into the control plane's namespace, for pool-a.
func (a *admin) source(name, label, data string) {
	a.Helper()
	a.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: clusters-hosted, labels: {" + label + ", hypershift.openshift.io/nodePool: pool-a}}\ndata:\n" + data)
}

func (a *admin) withoutSource(name string) {
	a.Helper()
	a.kubectl("delete", "configmap", "--namespace=clusters-hosted", name)
}

// aKubeletConfigIsCopied has a pool's KubeletConfig and the label of its node brought by the version before, and a change by
// this one.
func aKubeletConfigIsCopied(a *admin) (end func()) {
	const kubelet = `hypershift.openshift.io/kubeletconfig-config: ""`
	config := func(policy string) string {
		return "  config: |\n    apiVersion: machineconfiguration.openshift.io/v1\n    kind: KubeletConfig\n    metadata: {name: numa}\n    spec: {kubeletConfig: {topologyManagerPolicy: " + policy + "}}\n"
	}
	copied := []string{"--namespace=openshift-config-managed", "configmap/numa-pool-a"}
	a.source("numa-pool-a", kubelet, config("restricted"))
	a.source("nodes-pool-a", `nodepool.workload.openshift.io/nodes: ""`, "  "+a.Name+`: ""`+"\n")
	a.await("create", copied...)
	a.await(`jsonpath={.metadata.labels.hypershift\.openshift\.io/nodePool}=pool-a`, "node/"+a.Name)
	a.source("numa-pool-a", kubelet, config("none"))
	return func() {
		a.WaitFor(a.T, a.Limit, "the change is copied", func() error {
			if got := a.kubectl(append([]string{"get", "--output=jsonpath={.data}"}, copied...)...); !strings.Contains(got, "topologyManagerPolicy: none") {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
		a.withoutSource("numa-pool-a")
		a.withoutSource("nodes-pool-a")
	}
}

// sysctl is what a tuned node has changed.
const sysctl = "/proc/sys/kernel/printk_ratelimit_burst"

// aPoolIsTuned has the node tuned by the version before. This one replaces TuneD's pod, and the value stays; it goes with
// the companion.
func aPoolIsTuned(a *admin) (end func()) {
	value := func() string { // also once the test's context has ended
		text, err := os.ReadFile(sysctl)
		if err != nil {
			a.Error(err)
		}
		return strings.TrimSpace(string(text))
	}
	original := value()
	a.Cleanup(func() {
		if got := value(); got != original {
			a.Errorf("the kernel has %s, and had %s", got, original)
			_ = os.WriteFile(sysctl, []byte(original), 0)
		}
	})
	// Without a profile of its own the node would get that of all nodes, which sets some 25 sysctls of this host.
	a.source("tuned-pool-a", `hypershift.openshift.io/tuned-config: "true"`, `  tuning: |
    apiVersion: tuned.openshift.io/v1
    kind: Tuned
    metadata: {name: sample, namespace: openshift-cluster-node-tuning-operator}
    spec:
      profile:
      - name: sample
        data: |
          [main]
          summary=sample
          [sysctl]
          kernel.printk_ratelimit_burst=11
      recommend: [{priority: 5, profile: sample}]
`)
	a.kubectl("label", "node", a.Name, "hypershift.openshift.io/nodePool=pool-a")
	tunes := func(what string) {
		a.Helper()
		a.WaitFor(a.T, a.Limit, what, func() error {
			sets := a.kubectl("get", "daemonsets", "--namespace=openshift-cluster-node-tuning-operator", "--output=jsonpath={range .items[*]}{.status.numberReady}/{.status.updatedNumberScheduled}/{.status.desiredNumberScheduled}{end}")
			if got := value(); got != "11" || sets != "1/1/1" {
				return fmt.Errorf("the kernel has %s, and the DaemonSet is %s", got, sets)
			}
			return nil
		})
	}
	tunes("the node is tuned")
	return func() {
		tunes("the node is tuned by this version")
		a.withoutSource("tuned-pool-a")
		a.kubectl("label", "node", a.Name, "hypershift.openshift.io/nodePool-")
	}
}

// aNodeIsTold has a daemon of the version before tell the node what has been copied in two hops. This one replaces the daemon, and
// brings a change; what the node was told goes with the companion.
func aNodeIsTold(a *admin) (end func()) {
	const namespace, annotation = "partition-example-node", "example.workload.openshift.io/data"
	source := func(value string) {
		a.Helper()
		a.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: " + a.namespace + ", labels: {example.workload.openshift.io/copied: \"true\"}}\ndata: {burst: \"" + value + "\"}\n")
	}
	image := func() string {
		return a.kubectl("get", "pods", "--namespace="+namespace, "--field-selector=spec.nodeName="+a.Name, "--output=jsonpath={.items[*].spec.containers[*].image}")
	}
	told := func(value, not string) {
		a.Helper()
		a.WaitFor(a.T, a.Limit, "the node is told", func() error {
			sets := a.kubectl("get", "daemonsets", "--namespace="+namespace, "--output=jsonpath={range .items[*]}{.status.numberReady}/{.status.updatedNumberScheduled}/{.status.desiredNumberScheduled}{end}")
			if got, pods := a.Object(a.T).Annotations[annotation], image(); got != `{"settings":{"burst":"`+value+`"}}` || sets != "1/1/1" || pods == not || strings.Contains(pods, " ") {
				return fmt.Errorf("its annotation is %q, the DaemonSet is %q, and its pods have the images %q", got, sets, pods)
			}
			return nil
		})
	}
	copies := func() string {
		return a.kubectl("get", "configmaps", "--all-namespaces", "--selector=workload.openshift.io/companion=example", "--output=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.uid}{\"\\n\"}{end}")
	}
	source("11")
	told("11", "")
	before, made := image(), copies()
	source("12") // the version before may be stopped in the middle of this
	return func() {
		told("12", before)
		if now := copies(); now != made || strings.Count(made, "\n") != 2 {
			a.Errorf("the copies were\n%sand are\n%s", made, now)
		}
	}
}
