/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package vm

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/e2e/browser"
	"workload.openshift.io/operators/e2e/internal/rig"
)

// A person on this host switches the node's policy in a browser, with what kubectl partition console opens.
func inBrowser(t *testing.T, s *site) {
	n := s.first()
	const person = "anna"
	n.mayUpdateNodes(t, person)
	signIn, console := n.openConsole(t, person)
	b := browser.Start(t, chromium, 2*time.Minute)
	b.Open(signIn)
	b.Press("Sign in as system:serviceaccount:default:" + person)
	await := func(parts ...string) {
		t.Helper()
		n.WaitFor(t, n.SwitchLimit, "the console shows it", func() error {
			// The switch ends the connection, which goes through the kubelet.
			if err := b.TryToOpen(console + "/hosts"); err != nil {
				return err
			}
			row := b.Row(n.Name)
			for _, part := range parts {
				if !strings.Contains(row, part) {
					return fmt.Errorf("the row of the node is %q, want %q in it, on a page that says %q", row, part, b.Text())
				}
			}
			return nil
		})
	}

	await("Enable CPU Manager", "false")
	b.Press("Enable CPU Manager on " + n.Name)
	await("static: complete", "Disable CPU Manager", "true")
	n.InForce(t, "static")
	exclusive := n.StartPod(t, rig.Pod("exclusive", nil, "cpu=2 memory=32Mi", "cpu=2 memory=32Mi"))
	b.Press("Disable CPU Manager on " + n.Name)
	if alert := b.Alert(); !strings.Contains(alert, rig.PodNamespace+"/exclusive") {
		t.Errorf("a refusal says %q, want the pod in it", alert)
	}
	n.RemovePod(t, exclusive.Name)
	await("static: complete", "Disable CPU Manager")
	b.Press("Disable CPU Manager on " + n.Name)
	await("none: complete", "Enable CPU Manager", "false")
	n.InForce(t, "none")
}

// mayUpdateNodes creates a ServiceAccount with the rights of who switches policies in the console.
func (n *node) mayUpdateNodes(t *testing.T, name string) {
	t.Helper()
	ctx, meta := t.Context(), metav1.ObjectMeta{Name: name}
	_, err := n.Client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err == nil {
		_, err = n.Client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"list", "get", "update"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
		}}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = n.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// openConsole runs kubectl partition console until the test ends, and returns the URLs that it prints.
func (n *node) openConsole(t *testing.T, account string) (signIn, console string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), plugin, "console", "--kubeconfig="+n.Kubeconfig, "--as-service-account=default/"+account)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Wait() }) // the end of the test's context has killed it
	for lines := bufio.NewScanner(output); console == "" && lines.Scan(); {
		what, url, _ := strings.Cut(lines.Text(), ":")
		url, _, _ = strings.Cut(strings.TrimSpace(url), ",")
		switch what {
		case "Sign in":
			signIn = url
		case "Console":
			console = url
		}
	}
	if console == "" {
		t.Fatalf("kubectl partition console prints no URL: %s", stderr.String())
	}
	return signIn, console
}
