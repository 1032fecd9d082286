// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// Pods of each workload kind are partitioned. Where they would be skipped, the user who creates the
// workload is warned at once.
func TestPodsOfEachWorkloadKindArePartitioned(t *testing.T) {
	in(t)
	c, open := activeType(t)
	plain := fixture.Namespace(t, c.Client, "")
	labels := map[string]string{"app": "operator"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := func(restart v1.RestartPolicy) v1.PodTemplateSpec {
		spec := fixture.Pod("", nil, fixture.Container("c", "true", "cpu=400m memory=16Mi", "")).Spec
		spec.RestartPolicy = restart
		return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: asks}, Spec: spec}
	}
	always, never := template(v1.RestartPolicyAlways), template(v1.RestartPolicyNever)
	one := int32(1)
	meta := func(kind string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: kind} }
	kinds := map[string]func(namespace string) ([]string, error){}
	for name, create := range map[string]func(*kubernetes.Clientset, string) error{
		"deployment": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta("deployment"), Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selector, Template: always}}, metav1.CreateOptions{})
			return err
		},
		"daemonset": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.AppsV1().DaemonSets(ns).Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: meta("daemonset"), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: always}}, metav1.CreateOptions{})
			return err
		},
		"statefulset": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.AppsV1().StatefulSets(ns).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: meta("statefulset"), Spec: appsv1.StatefulSetSpec{Replicas: &one, Selector: selector, Template: always}}, metav1.CreateOptions{})
			return err
		},
		"replicaset": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.AppsV1().ReplicaSets(ns).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: meta("replicaset"), Spec: appsv1.ReplicaSetSpec{Replicas: &one, Selector: selector, Template: always}}, metav1.CreateOptions{})
			return err
		},
		"replicationcontroller": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.CoreV1().ReplicationControllers(ns).Create(t.Context(), &v1.ReplicationController{ObjectMeta: meta("replicationcontroller"), Spec: v1.ReplicationControllerSpec{Replicas: &one, Selector: labels, Template: &always}}, metav1.CreateOptions{})
			return err
		},
		"job": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: never}}, metav1.CreateOptions{})
			return err
		},
		"cronjob": func(c *kubernetes.Clientset, ns string) error {
			_, err := c.BatchV1().CronJobs(ns).Create(t.Context(), &batchv1.CronJob{ObjectMeta: meta("cronjob"), Spec: batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: never}}}}, metav1.CreateOptions{})
			return err
		},
	} {
		kinds[name] = func(namespace string) ([]string, error) {
			client, recorded := recording(t)
			err := create(client, namespace)
			return recorded.texts, err
		}
	}
	for kind, create := range kinds {
		warned, err := create(open)
		if err != nil || len(warned) > 0 {
			t.Errorf("in a namespace that allows the type, a %s got %v and the warnings %q, want neither", kind, err, warned)
		}
		warned, err = create(plain)
		if err != nil || len(warned) != 1 || !strings.HasPrefix(warned[0], "pods of this template: ") || !strings.Contains(warned[0], "namespace is not annotated with workload.openshift.io/allowed") {
			t.Errorf("in a namespace without annotation, a %s got %v and the warnings %q, want one warning", kind, err, warned)
		}
	}
	t.Run("a template that only defaults make Guaranteed", func(t *testing.T) {
		for _, resources := range [][2]string{{"", "cpu=400m memory=16Mi"}, {"cpu=400m", "cpu=400m memory=16Mi"}} {
			client, recorded := recording(t)
			guaranteed := *always.DeepCopy()
			guaranteed.Spec.Containers = []v1.Container{fixture.Container("c", "true", resources[0], resources[1])}
			if _, err := client.AppsV1().Deployments(open).Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta("guaranteed"), Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selector, Template: guaranteed}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Fatal(err)
			}
			if warned := recorded.texts; len(warned) != 1 || !strings.HasPrefix(warned[0], "pods of this template: ") || !strings.Contains(warned[0], "QoS class Guaranteed") {
				t.Errorf("with the requests %q and the limits %q the client was warned with %q", resources[0], resources[1], warned)
			}
		}
	})
	t.Run("a template that names what is unknown", func(t *testing.T) {
		both := fixture.Namespace(t, c.Client, "management,other")
		for name, test := range map[string]struct {
			annotations map[string]string
			want        string
		}{
			"a type without a pool": {fixture.Asks("other"), "no pool of this type is active here"},
			"an unknown effect":     {map[string]string{managementTarget: `{"effect": "Sometimes"}`}, "Sometimes"},
		} {
			client, recorded := recording(t)
			unknown := *always.DeepCopy()
			unknown.Annotations = test.annotations
			if _, err := client.AppsV1().Deployments(both).Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta("unknown"), Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selector, Template: unknown}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Fatal(err)
			}
			if warned := recorded.texts; len(warned) != 1 || !strings.HasPrefix(warned[0], "pods of this template: ") || !strings.Contains(warned[0], test.want) {
				t.Errorf("with %s the client was warned with %q, want %q", name, warned, test.want)
			}
		}
	})
	// The controller would do this at the next full minute.
	mustKubectl(t, open, "", "create", "job", "cronjob-now", "--from=cronjob/cronjob")
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			waitFor(t, 20*time.Second, "there is a pod of the "+kind, func() error {
				pods, err := c.Client.CoreV1().Pods(open).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					return err
				}
				for i := range pods.Items {
					p := &pods.Items[i]
					if !strings.HasPrefix(p.Name, kind+"-") {
						continue
					}
					if _, is := partition.PartitionedType(p); !is || !equality.Semantic.DeepEqual(p.Spec.Containers[0].Resources.Requests[cores], resource.MustParse("400")) {
						t.Errorf("pod %s has the annotations %v and %v", p.Name, p.Annotations, p.Spec.Containers[0].Resources)
					}
					return nil
				}
				return fmt.Errorf("there are %d pods, and none of it", len(pods.Items))
			})
		})
	}
}
