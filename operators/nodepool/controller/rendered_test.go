// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/testenv"
)

// bind lets the companion write Secrets in the control plane's namespace, as docs/user/nodepools.md has it.
func (m *management) bind() {
	m.t.Helper()
	m.do(m.Create(m.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.controlPlane, Name: Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nodepool-controlplane"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: m.Installed.Namespace, Name: "partition-controller"}},
	}))
}

// versions returns the target and the current configuration of a pool, and its Secrets.
func (m *management) versions(pool string) (target, current string, secrets []string) {
	m.t.Helper()
	var found v1beta1.NodePool
	m.do(m.Get(m.t.Context(), client.ObjectKey{Namespace: m.namespace, Name: pool}, &found))
	var list corev1.SecretList
	m.do(m.List(m.t.Context(), &list, client.InNamespace(m.controlPlane), client.MatchingLabels{companion.OwnerLabel: Name, v1beta1.PoolLabel: pool}))
	for _, secret := range list.Items {
		secrets = append(secrets, secret.Name)
	}
	return found.Annotations[v1beta1.TargetConfigAnnotation], found.Annotations[v1beta1.CurrentConfigAnnotation], secrets
}

// generate writes what the companion tuning makes for the pool's input: a MachineConfig with these arguments.
func (m *management) generate(pool, arguments string) {
	m.t.Helper()
	var tuned corev1.ConfigMap
	m.do(m.Get(m.t.Context(), client.ObjectKey{Namespace: m.controlPlane, Name: v1beta1.TunedConfigMapName(pool)}, &tuned))
	input := v1beta1.InputHash(tuned.Data[v1beta1.TuningKey], "")
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: m.controlPlane, Name: name, Labels: map[string]string{v1beta1.PoolLabel: pool}, Annotations: map[string]string{v1beta1.InputAnnotation: input}}
	}
	part := &corev1.ConfigMap{ObjectMeta: meta(v1beta1.MachineConfigMapName(pool)), Data: map[string]string{
		v1beta1.ConfigKey: fmt.Sprintf("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 50-nto-%s}\nspec: {kernelArguments: [%s]}\n", pool, arguments),
	}}
	generated, err := json.Marshal(v1beta1.Generated{Input: input, Computed: true, Parts: map[string]string{part.Name: v1beta1.PartHash(part)}})
	m.do(err)
	for _, configMap := range []*corev1.ConfigMap{part, {ObjectMeta: meta(v1beta1.GeneratedName(pool)), Data: map[string]string{v1beta1.GeneratedKey: string(generated)}}} {
		if err := m.Update(m.t.Context(), configMap); err != nil {
			m.do(m.Create(m.t.Context(), configMap))
		}
	}
}

// record is what the provider of machines says of a pool's nodes: pairs of a name and what it has booted.
func (m *management) record(pool string, nodes ...string) {
	m.t.Helper()
	booted, data := map[string]string{}, map[string]string{}
	for i := 0; i < len(nodes); i += 2 {
		booted[nodes[i]], data[nodes[i]] = nodes[i+1], ""
	}
	text, err := json.Marshal(booted)
	m.do(err)
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.controlPlane, Name: "nodes-" + pool, Labels: map[string]string{v1beta1.NodesLabel: "", v1beta1.PoolLabel: pool}, Annotations: map[string]string{v1beta1.BootedAnnotation: string(text)}}, Data: data}
	if err := m.Update(m.t.Context(), record); err != nil {
		m.do(m.Create(m.t.Context(), record))
	}
}

// awaitVersions waits until a pool has a target other than this one, and until the current configuration is as wanted.
func (m *management) awaitVersions(pool, not string, settled bool) string {
	m.t.Helper()
	got := ""
	testenv.Eventually(m.t, 4*soon, func() error {
		target, current, secrets := m.versions(pool)
		want := 1
		if !settled {
			want = 2
		}
		if target == "" || target == not || (current == target) != settled || len(secrets) != want {
			return fmt.Errorf("the target is %q, the current one %q, the Secrets are %q", target, current, secrets)
		}
		got = target
		return nil
	})
	return got
}

// meanwhile does something after the NodePools were read, before it is written which configuration their nodes are to have.
type meanwhile struct {
	client.Reader
	do func()
}

func (m *meanwhile) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, records := list.(*corev1.ConfigMapList); records {
		m.do()
	}
	return m.Reader.List(ctx, list, options...)
}

// What was read of a NodePool may be old: somebody pauses it before an edit, or another leader has seen more.
func TestATargetIsThatOfTheNodePoolAsItIs(t *testing.T) {
	m := newManagement(t).withControlPlane()
	m.configMap("boot", "config", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 40-boot}\nspec: {kernelArguments: [audit=0]}\n")
	m.pool("pool-a", nil, []string{"boot"})
	pause := func() {
		m.do(m.Patch(t.Context(), &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "pool-a"}}, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:""}}}`, nodegroup.PausedAnnotation))))
	}
	r := &Reconciler{Client: m.Client, Reader: &meanwhile{m.Client, pause}}
	if _, err := r.Reconcile(t.Context(), requestFor(m.controlPlane)); !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	if target, _, _ := m.versions("pool-a"); target != "" {
		t.Errorf("the target is %s", target)
	}
}

func TestConfigurationOfAPoolIsRendered(t *testing.T) {
	m := newManagement(t).withControlPlane()
	m.start()
	m.pool("pool-a", nil, nil)
	m.awaitCondition("pool-a", v1beta1.ConditionRendered, "bind the ClusterRole nodepool-controlplane", m.controlPlane)
	const boot = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 40-boot}\nspec: {kernelArguments: [audit=0]}\n"
	m.configMap("boot", "config", boot)
	m.pool("pool-a", nil, []string{"boot"})
	m.bind()
	first := m.awaitVersions("pool-a", "", true)
	m.awaitCondition("pool-a", v1beta1.ConditionRendered)
	var secret corev1.Secret
	m.do(m.Get(t.Context(), client.ObjectKey{Namespace: m.controlPlane, Name: v1beta1.ConfigSecretName("pool-a", first)}, &secret))
	for _, want := range []string{`"ignition":{"config":{"replace":{"verification":{}}},"proxy":{},"security":{"tls":{}},"timeouts":{},"version":"3.3.0"}`, `"kernelArguments":{"shouldExist":["audit=0"]}`, `"path":"/etc/systemd/system/partition-tuned.service"`} {
		if got := string(secret.Data["value"]); !strings.Contains(got, want) {
			t.Errorf("the configuration is\n%s\nwithout\n%s", got, want)
		}
	}
	m.record("pool-a", "n1", first, "n2", first)

	// A source that is missing boots no node, and neither does its return.
	stays := func() {
		t.Helper()
		if target, current, secrets := m.versions("pool-a"); target != first || current != first || len(secrets) != 1 {
			t.Errorf("the target is %s and the current one %s, want %s; the Secrets are %q", target, current, first, secrets)
		}
	}
	m.remove("boot")
	m.awaitCondition("pool-a", v1beta1.ConditionValidMachineConfig, "there is no ConfigMap "+m.namespace+"/boot")
	stays()
	m.configMap("boot", "config", boot)
	m.awaitCondition("pool-a", v1beta1.ConditionValidMachineConfig)
	m.awaitCondition("pool-a", v1beta1.ConditionRendered)
	stays()

	// A Tuned: nothing changes until the companion tuning has settled it.
	m.configMap("sysctls", "tuning", aTuned("swap", "10"))
	m.pool("pool-a", []string{"sysctls"}, []string{"boot"})
	m.awaitCondition("pool-a", v1beta1.ConditionRendered, "tuning has not looked at this configuration yet")
	stays()
	m.generate("pool-a", "nosoftlockup")
	second := m.awaitVersions("pool-a", first, false)
	m.record("pool-a", "n1", second, "n2", first)
	m.awaitVersions("pool-a", first, false)
	m.record("pool-a", "n1", second, "n2", second)
	m.awaitVersions("pool-a", first, true)

	// A sysctl: no other configuration, also after it is settled.
	m.configMap("sysctls", "tuning", aTuned("swap", "20"))
	m.awaitCondition("pool-a", v1beta1.ConditionRendered, "tuning has not settled this configuration yet")
	m.generate("pool-a", "nosoftlockup")
	m.awaitCondition("pool-a", v1beta1.ConditionRendered)
	if target, _, _ := m.versions("pool-a"); target != second {
		t.Errorf("the target is %s, want %s", target, second)
	}

	// A Secret that somebody changed is put right, and goes with its pool.
	m.do(m.Get(t.Context(), client.ObjectKey{Namespace: m.controlPlane, Name: v1beta1.ConfigSecretName("pool-a", second)}, &secret))
	value := string(secret.Data["value"])
	secret.Data["value"] = []byte(`{"ignition":{"version":"3.3.0"},"kernelArguments":{"shouldExist":["init=/bin/sh"]}}`)
	m.do(m.Update(t.Context(), &secret))
	m.record("pool-a", "n1", second, "n2", second, "n3", second)
	testenv.Eventually(t, 4*soon, func() error {
		m.do(m.Get(t.Context(), client.ObjectKeyFromObject(&secret), &secret))
		if string(secret.Data["value"]) != value {
			return fmt.Errorf("it is %s", secret.Data["value"])
		}
		return nil
	})
	m.do(m.Delete(t.Context(), &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "pool-a"}}))
	testenv.Eventually(t, 4*soon, func() error {
		var list corev1.SecretList
		m.do(m.List(t.Context(), &list, client.InNamespace(m.controlPlane), client.MatchingLabels{companion.OwnerLabel: Name}))
		if len(list.Items) > 0 {
			return fmt.Errorf("%d Secrets are left", len(list.Items))
		}
		return nil
	})
}
