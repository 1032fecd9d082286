// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// A type becomes active when every node that counts reports its cores, and then stays active,
// whatever joins and restarts. The plugin's configuration can decide instead. What OpenShift's
// object Infrastructure decides is TestInfrastructureDecidesOnTheType's.
func TestTypesBecomeActiveAndStayActive(t *testing.T) {
	in(t)
	with := config
	with.WithoutNode = true
	c := alone(t, with)
	namespace := fixture.Namespace(t, c.Client, "management")
	first := creating(t, c, namespace)
	awaitActive(t, first, false)
	reportingNode(t, c, "a")
	reportingNode(t, c, "b", "management")
	time.Sleep(time.Second) // the period in which it must not be latched
	awaitActive(t, first, false)
	if got := fixture.Latched(t, c.Client); got != "" {
		t.Errorf("the latch is %q though one of two nodes lacks the type", got)
	}
	allow := guardKubeSystem(t, c)
	reportCores(t, c, "a", "management")
	// Nodes that never have a pool do not count.
	for name, labels := range map[string]string{"windows": `{"kubernetes.io/os": "windows"}`, "virtual": `{"type": "virtual-kubelet"}`, "ignored": `{"workload.openshift.io/partitioning": "ignore"}`} {
		reportingNode(t, c, name)
		if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata": {"labels": `+labels+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitActive(t, first, true)
	const unlatched = `apiserver_workload_partitioning_unlatched{workload_type="management"} 1`
	waitFor(t, 5*time.Second, "a metric says that the type cannot be latched", func() error {
		data, err := c.Client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err == nil && !strings.Contains(string(data), unlatched) {
			err = fmt.Errorf("there is no series %s", unlatched)
		}
		return err
	})
	allow()
	waitFor(t, 20*time.Second, "one Event says that the type is active", func() error {
		events, err := c.Client.CoreV1().Events(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Namespace,reason=WorkloadTypeActivated"})
		if err == nil && (len(events.Items) != 1 || !strings.Contains(events.Items[0].Message, "management")) {
			err = fmt.Errorf("there are the Events %v", events.Items)
		}
		return err
	})
	waitFor(t, 5*time.Second, "the type is latched", func() error {
		if got := fixture.Latched(t, c.Client); got != "management" {
			return fmt.Errorf("the latch is %q", got)
		}
		return nil
	})
	t.Run("a node without the type joins", func(t *testing.T) {
		reportingNode(t, c, "late")
		awaitActive(t, first, true)
		fixture.AwaitEvent(t, c.Client, eventLimit, "NodeMissingPartition", "management.workload.openshift.io/cores")
		t.Run("and kube-apiserver restarts under load", func(t *testing.T) { startsUnderLoad(t, c, namespace) })
		t.Run("and a second kube-apiserver starts", func(t *testing.T) { twoServers(t, c, namespace) })
	})
	t.Run("the configuration lists types", func(t *testing.T) {
		for _, name := range []string{"a", "b"} {
			deleteNode(t, c, name)
		}
		fixture.RemoveLatch(t, c.Client)
		awaitActive(t, first, false)
		restartAPIServer(t, c, partitioningConfig(`"activation": {"source": "Types", "types": ["management"]}`))
		awaitActive(t, creating(t, c, namespace), true)
		if got := fixture.Latched(t, c.Client); got != "" {
			t.Errorf("the latch is %q, and what the configuration decides is not to be latched", got)
		}
	})
	t.Run("the configuration has a mistake", func(t *testing.T) { mistakes(t, c) })
}

// guardKubeSystem forbids changes of the namespace kube-system.
func guardKubeSystem(t *testing.T, c *host.Cluster) (allow func()) {
	t.Helper()
	return guard(t, c, "namespaces", `object.metadata.name != "kube-system"`, func() error {
		_, err := c.Client.CoreV1().Namespaces().Patch(t.Context(), metav1.NamespaceSystem, types.MergePatchType, []byte(`{"metadata": {"labels": {"guarded": "no"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// guard creates a policy that forbids updates of a resource for which the expression does not hold,
// and waits until it forbids the attempt. The function that it returns deletes the policy.
func guard(t *testing.T, c *host.Cluster, resource, expression string, attempt func() error) (allow func()) {
	t.Helper()
	policies, bindings := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	meta := metav1.ObjectMeta{Name: "guard"}
	if _, err := policies.Create(t.Context(), &admissionregistration.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistration.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistration.MatchResources{ResourceRules: []admissionregistration.NamedRuleWithOperations{{RuleWithOperations: admissionregistration.RuleWithOperations{
			Operations: []admissionregistration.OperationType{admissionregistration.Update}, Rule: admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}}}}}},
		Validations: []admissionregistration.Validation{{Expression: expression, Message: "guarded"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove := sync.OnceValue(func() error {
		return errors.Join(bindings.Delete(cleanup(t), "guard", metav1.DeleteOptions{}), policies.Delete(cleanup(t), "guard", metav1.DeleteOptions{}))
	})
	t.Cleanup(func() { _ = remove() })
	if _, err := bindings.Create(t.Context(), &admissionregistration.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistration.ValidatingAdmissionPolicyBindingSpec{PolicyName: "guard",
		ValidationActions: []admissionregistration.ValidationAction{admissionregistration.Deny}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 20*time.Second, "no user can change "+resource, func() error {
		if err := attempt(); err == nil || !strings.Contains(err.Error(), "guarded") {
			return fmt.Errorf("a change returned %v", err)
		}
		return nil
	})
	return func() {
		t.Helper()
		if err := remove(); err != nil {
			t.Error(err)
		}
	}
}

// startsUnderLoad restarts kube-apiserver while clients create pods. Each pod is either
// partitioned or not created.
func startsUnderLoad(t *testing.T, c *host.Cluster, namespace string) {
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	created, refused := 0, map[string]int{}
	for i := range 4 {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				p, err := c.Client.CoreV1().Pods(namespace).Create(ctx, fixture.Pod(fmt.Sprintf("load-%d-%d", i, n), asks, fixture.Container("c", "true", "cpu=100m memory=16Mi", "")), metav1.CreateOptions{})
				mu.Lock()
				if err != nil {
					refused[strings.SplitN(err.Error(), ":", 2)[0]]++
				} else {
					created++
					if _, is := partition.PartitionedType(p); !is {
						t.Errorf("pod %s is not partitioned: it has the annotations %v", p.Name, p.Annotations)
					}
				}
				mu.Unlock()
				time.Sleep(5 * time.Millisecond) // the rate of the load, not a wait
			}
		})
	}
	end := func() {
		stop()
		clients.Wait()
	}
	defer end()
	awaitMore := func() {
		t.Helper()
		mu.Lock()
		before := created
		mu.Unlock()
		const more = 100
		waitFor(t, time.Minute, fmt.Sprintf("clients have created %d more pods", more), func() error {
			mu.Lock()
			defer mu.Unlock()
			if created < before+more {
				return fmt.Errorf("they have created %d; all errors until now: %v", created-before, refused)
			}
			return nil
		})
	}
	awaitMore()
	if err := c.RestartAPIServer(t.Context()); err != nil {
		t.Error(err)
	}
	awaitMore()
	end()
	t.Logf("%d pods were created, all of them partitioned; errors: %v", created, refused)
}

// twoServers checks that two kube-apiservers decide alike within a second of each other.
func twoServers(t *testing.T, c *host.Cluster, namespace string) {
	url, err := c.StartSecondAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.SecondAPIServer.Kill(); err != nil {
			t.Error(err)
		}
	})
	client := clientFor(t, clientConfig(t, url))
	first := creating(t, c, namespace)
	second := func(p *v1.Pod, options metav1.CreateOptions) (*v1.Pod, error) {
		return client.CoreV1().Pods(namespace).Create(t.Context(), p, options)
	}
	agree := func(what string, want bool) {
		t.Helper()
		began := time.Now()
		for _, create := range []creator{first, second} {
			awaitActive(t, create, want)
		}
		t.Logf("%s, both agreed after %s", what, time.Since(began))
	}
	agree("at the start of the second", true)
	fixture.RemoveLatch(t, c.Client)
	agree("when the latch was removed and a node lacked the type", false)
	reportCores(t, c, "late", "management")
	agree("when all nodes had the type again", true)
	waitFor(t, 5*time.Second, "the type is in the latch, once", func() error {
		if got := fixture.Latched(t, c.Client); got != "management" {
			return fmt.Errorf("the latch is %q", got)
		}
		return nil
	})
	reportCores(t, c, "late")
	agree("when the type was latched and a node lacked it", true)
}

// mistakes checks that a kube-apiserver with a mistake in the plugin's configuration does not
// start, and names the field in one line.
func mistakes(t *testing.T, c *host.Cluster) {
	t.Cleanup(func() { restartAPIServer(t, c, "") })
	for name, test := range map[string]struct{ configuration, want string }{
		"an unknown field":  {partitioningConfig(`"activation": {"sources": "Nodes"}`), `unknown field \"activation.sources\"`},
		"an unknown source": {partitioningConfig(`"activation": {"source": "Moon"}`), `activation.source: Unsupported value: \"Moon\"`},
		"no types":          {partitioningConfig(`"activation": {"source": "Types"}`), "activation.types: Required value"},
		"an invalid type":   {partitioningConfig(`"activation": {"source": "Types", "types": ["Management"]}`), `activation.types[0]: Invalid value: \"Management\"`},
		"another version":   {strings.Replace(partitioningConfig(`"activation": {}`), "v1alpha1", "v7", 1), `apiVersion: Unsupported value: \"partitioning.workload.openshift.io/v7\"`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.APIServer.Kill(); err != nil {
				t.Fatal(err)
			}
			c.Config.AdmissionConfiguration = test.configuration
			if err := c.WriteAdmissionConfiguration(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			output, err := exec.CommandContext(ctx, c.APIServer.Args()[0], c.APIServer.Args()[1:]...).CombinedOutput()
			if err == nil || ctx.Err() != nil {
				t.Fatalf("kube-apiserver did not end by itself within 30 seconds, or ended without an error: %v. It printed\n%s", err, output)
			}
			var found []string
			for line := range strings.Lines(string(output)) {
				if strings.Contains(line, "workload.openshift.io/Partitioning") && strings.Contains(line, "onfiguration: ") {
					found = append(found, line)
				}
			}
			want := strings.ReplaceAll(test.want, `\"`, `"`)
			if len(found) != 1 || !strings.Contains(strings.ReplaceAll(found[0], `\"`, `"`), want) {
				t.Errorf("kube-apiserver printed %q about its configuration, want one line with %s", found, want)
			}
		})
	}
}
