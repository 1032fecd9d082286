// SPDX-License-Identifier: Apache-2.0

// Package story has no code. Its tests see tuning whole: a management cluster, a hosted one, the companion between them, and
// TuneD on a node, each with the rights of its ServiceAccount. The node is a process in namespaces of its own.
package story

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // as in the real program
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/cmd/partition-controller/app"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/tuning"
	"workload.openshift.io/operators/tuning/controller"
	"workload.openshift.io/operators/tuning/daemon"
	"workload.openshift.io/operators/tuning/tunedtest"
)

var unchanged = flag.Duration("unchanged", 5*time.Second, "how long a typo must change nothing")

const (
	namespace = "partition-tuning"
	// controlPlane is the hosted cluster's, with the ConfigMaps.
	controlPlane = "clusters-hosted"
	node         = "node-a"
)

func TestMain(m *testing.M) {
	testenv.Main(m, tunedtest.Programs(testenv.Programs{
		"partition-controller": func() int {
			command := app.NewCommand(&controller.Companion{})
			command.SetContext(ctrl.SetupSignalHandler())
			return cli.Run(command)
		},
		"tuned": func() int {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			defer stop()
			config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
			if err != nil {
				panic(err)
			}
			c, err := daemon.NewClient(config)
			if err != nil {
				panic(err)
			}
			d := &daemon.Daemon{Node: node, Client: c, Python: tunedtest.Python, EtcDir: "/etc/tuned", RunDir: "/run/tuned", BootID: "the only one"}
			if err := d.Run(logr.NewContext(ctx, klog.Background())); err != nil {
				panic(err)
			}
			return 0
		},
	}), tunedv1.AddToScheme)
}

type story struct {
	*testing.T
	*tunedtest.Kernel
	home, hosted *companiontest.Installed
}

func (s *story) do(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// kubeconfig is that of the operand, with the token of a pod.
func (s *story) kubeconfig(pod *corev1.Pod) string {
	s.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: s.hosted.Config.Host, CertificateAuthorityData: s.hosted.Config.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: s.hosted.Token(s.T, tunedv1.Namespace, "tuned", pod)}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(s.TempDir(), "kubeconfig")
	s.do(clientcmd.WriteToFile(*config, path))
	return path
}

// controllers starts the companion.
func (s *story) controllers() *testenv.Process {
	s.Helper()
	config := s.home.Configuration(s.T)
	// On a busy host a Lease of seconds is lost.
	config.LeaderElection.LeaseDuration.Duration, config.LeaderElection.RenewDeadline.Duration = time.Hour, 50*time.Minute
	config.HostedConnection.Kubeconfig = s.hosted.Identity(s.T, "tuning")
	return s.home.Run(s.T, config)
}

// pod is one of the operand's on a node. No kubelet runs it; its token is that of such a pod.
func (s *story) pod(node string) *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: "tuned-" + node},
		Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: "tuned", Containers: []corev1.Container{{Name: "tuned", Image: "tuned"}}},
	}
	s.do(s.hosted.Client.Create(s.Context(), pod))
	return pod
}

// configure gives the pool's ConfigMap a Tuned that sets the sysctl.
func (s *story) configure(value string, change ...string) {
	s.Helper()
	text := fmt.Sprintf(`apiVersion: tuned.openshift.io/v1
kind: Tuned
metadata:
  name: queues
spec:
  profile:
  - name: queues
    data: |
      [main]
      summary=test
      [sysctl]
      %s=%s
  recommend:
  - profile: queues
    priority: 20
`, tunedtest.Sysctl, value)
	if len(change) > 0 {
		text = strings.Replace(text, change[0], change[1], 1)
	}
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlPlane, Name: "tuned-pool-a", Labels: map[string]string{tunedv1.TunedConfigLabel: "true", tunedv1.NodePoolLabel: "pool-a"}},
		Data:       map[string]string{tunedv1.TuningKey: text},
	}
	err := s.home.Client.Create(s.Context(), configMap)
	if apierrors.IsAlreadyExists(err) {
		err = s.home.Client.Update(s.Context(), configMap)
	}
	s.do(err)
}

func (s *story) applied(within time.Duration) {
	s.Helper()
	testenv.Eventually(s.T, within, func() error {
		profile := &tunedv1.Profile{}
		if err := s.hosted.Client.Get(s.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: node}, profile); err != nil {
			return err
		}
		if profile.Status.ObservedGeneration != profile.Generation || !meta.IsStatusConditionTrue(profile.Status.Conditions, tunedv1.ConditionApplied) {
			return fmt.Errorf("the status of generation %d is %+v", profile.Generation, profile.Status)
		}
		return nil
	})
}

func TestASysctlFromTheManagementClusterToAKernel(t *testing.T) {
	s := &story{
		T: t, Kernel: tunedtest.New(t),
		home:   &companiontest.Installed{ControlPlane: testenv.Start(t), Name: "tuning", Namespace: namespace},
		hosted: &companiontest.Installed{ControlPlane: testenv.StartHosted(t), Name: "tuning", Namespace: namespace},
	}
	s.home.Kubectl(t, "apply", "--server-side", "-k", companiontest.Base("tuning"))
	s.home.Kubectl(t, "apply", "--server-side", "-f", filepath.Join(companiontest.Base("sample"), "management.yaml"))
	s.hosted.Kubectl(t, "apply", "--server-side", "-k", filepath.Join(companiontest.Base("tuning"), "hosted"))
	s.do(s.hosted.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{tunedv1.NodePoolLabel: "pool-a"}}}))
	s.do(s.hosted.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b", Labels: map[string]string{tunedv1.NodePoolLabel: "pool-b"}}}))
	pod := s.pod(node)
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: tunedv1.Namespace, Name: name}
	}
	hostedName := tuning.HostedName("queues", "pool-a")

	// From a ConfigMap to the kernel.
	s.configure("32768")
	controllers := s.controllers()
	operand := s.Kernel.Run(t, "tuned", s.kubeconfig(pod))
	s.Eventually(t, "32768", 30*time.Second)
	s.applied(30 * time.Second)
	s.do(s.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: hostedName}, &tunedv1.Tuned{}))
	pid := s.PID()

	// An edited value. TuneD is not started again.
	s.configure("40000")
	s.Eventually(t, "40000", 10*time.Second)
	s.applied(30 * time.Second)
	if got := s.PID(); got != pid {
		t.Errorf("TuneD is process %s, and was %s", got, pid)
	}

	// What a compromised operand can do: write what became of its own node's Profile.
	t.Run("the operand's token", func(t *testing.T) {
		c := s.hosted.As(t, s.hosted.Token(t, tunedv1.Namespace, "tuned", pod))
		loose := s.hosted.As(t, s.hosted.Token(t, tunedv1.Namespace, "tuned", nil))
		merge := func(text string) client.Patch { return client.RawPatch("application/merge-patch+json", []byte(text)) }
		status := merge(`{"status":{"tunedProfile":"x"}}`)
		for name, err := range map[string]error{
			"another node's status":               c.Status().Patch(t.Context(), &tunedv1.Profile{ObjectMeta: at("node-b")}, status),
			"its own status, with a loose token":  loose.Status().Patch(t.Context(), &tunedv1.Profile{ObjectMeta: at(node)}, status),
			"its own Profile's spec":              c.Patch(t.Context(), &tunedv1.Profile{ObjectMeta: at(node)}, merge(`{"spec":{"config":{"tunedProfile":"x"}}}`)),
			"its own Profile's end":               c.Delete(t.Context(), &tunedv1.Profile{ObjectMeta: at(node)}),
			"another Profile":                     c.Create(t.Context(), &tunedv1.Profile{ObjectMeta: at("x"), Spec: tunedv1.ProfileSpec{}}),
			"a Tuned":                             c.Patch(t.Context(), &tunedv1.Tuned{ObjectMeta: at(hostedName)}, merge(`{"spec":{}}`)),
			"reading Tuneds":                      c.List(t.Context(), &tunedv1.TunedList{}, client.InNamespace(tunedv1.Namespace)),
			"a Node":                              c.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, merge(`{"metadata":{"labels":{"x":"y"}}}`)),
			"reading Nodes":                       c.List(t.Context(), &corev1.NodeList{}),
			"reading ConfigMaps":                  c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(tunedv1.Namespace)),
			"a ConfigMap":                         c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: at("x")}),
			"a token of the operator's":           c.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tuning"}}, &authenticationv1.TokenRequest{}),
			"all Profiles' end":                   c.DeleteAllOf(t.Context(), &tunedv1.Profile{}, client.InNamespace(tunedv1.Namespace)),
			"another node's claim":                c.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}, merge(`{"metadata":{"annotations":{"x":"y"}}}`)),
			"its own node's status":               c.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, merge(`{"status":{"phase":"x"}}`)),
			"a pod":                               c.Create(t.Context(), &corev1.Pod{ObjectMeta: at("x"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}),
			"reading Secrets":                     c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(tunedv1.Namespace)),
			"the DaemonSet":                       c.Delete(t.Context(), &appsv1.DaemonSet{ObjectMeta: at(daemon.DaemonSet)}),
			"a status by a cluster administrator": s.hosted.Client.Status().Patch(t.Context(), &tunedv1.Profile{ObjectMeta: at(node)}, status),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := c.Status().Patch(t.Context(), &tunedv1.Profile{ObjectMeta: at(node)}, merge(`{"status":{"tunedProfile":"queues"}}`)); err != nil {
			t.Errorf("its own status: %v", err)
		}
	})

	// A hosted administrator: refused; without the policies put back, and the kernel's value never moves.
	values := s.Watch(t)
	edits := map[string]func() error{
		"a Tuned": func() error {
			return s.hosted.Client.Patch(t.Context(), &tunedv1.Tuned{ObjectMeta: at(hostedName)}, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"profile":[{"name":"queues","data":"[sysctl]\nkernel.msgmnb=1000"}]}}`)))
		},
		"a Profile": func() error {
			return s.hosted.Client.Patch(t.Context(), &tunedv1.Profile{ObjectMeta: at(node)}, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"profile":[{"name":"queues","data":"[sysctl]\nkernel.msgmnb=1000"}]}}`)))
		},
		"a Profile's end": func() error { return s.hosted.Client.Delete(t.Context(), &tunedv1.Profile{ObjectMeta: at(node)}) },
	}
	for name, edit := range edits {
		if err := edit(); !apierrors.IsForbidden(err) {
			t.Errorf("%s is changed: %v", name, err)
		}
	}
	s.do(s.hosted.Client.DeleteAllOf(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}))
	for name, edit := range edits {
		testenv.Eventually(t, 20*time.Second, edit)
		testenv.Eventually(t, 10*time.Second, func() error {
			tuned, profile := &tunedv1.Tuned{}, &tunedv1.Profile{}
			if err := s.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: hostedName}, tuned); err != nil {
				return err
			}
			if err := s.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: node}, profile); err != nil {
				return err
			}
			if !strings.Contains(tuned.Spec.Profile[0].Data, "40000") || !strings.Contains(profile.Spec.Profile[0].Data, "40000") {
				return fmt.Errorf("%s is not put back", name)
			}
			return nil
		})
	}
	time.Sleep(4 * time.Second)
	if got := values(); !slices.Equal(got, []string{"40000"}) {
		t.Errorf("the kernel's values were %q", got)
	}
	s.hosted.Kubectl(t, "apply", "--server-side", "-k", filepath.Join(companiontest.Base("tuning"), "hosted"))

	// A typo.
	s.configure("50000", "recommend:", "recomend:")
	testenv.Eventually(t, 10*time.Second, func() error {
		tuned := &tunedv1.Tuned{}
		if err := s.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: hostedName}, tuned); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(tuned.Status.Conditions, tunedv1.ConditionValid)
		if condition == nil || condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, "ConfigMap clusters-hosted/tuned-pool-a, key tuning: document 1, line 13: unknown field") {
			return fmt.Errorf("the condition is %v", condition)
		}
		t.Log(condition.Message)
		return nil
	})
	testenv.Always(t, *unchanged, func() error {
		if got := s.Value(t); got != "40000" {
			return fmt.Errorf("%s is %s", tunedtest.Sysctl, got)
		}
		tuned := &tunedv1.Tuned{}
		if err := s.hosted.Client.Get(t.Context(), client.ObjectKey{Namespace: tunedv1.Namespace, Name: hostedName}, tuned); err != nil || !strings.Contains(tuned.Spec.Profile[0].Data, "40000") {
			return fmt.Errorf("the Tuned has %v: %w", tuned.Spec, err)
		}
		return nil
	})
	s.configure("50000")
	s.Eventually(t, "50000", 10*time.Second)
	s.applied(30 * time.Second)

	// TuneD is killed, and the profile removed.
	var number int
	if _, err := fmt.Sscan(s.PID(), &number); err != nil || number < 2 {
		t.Fatalf("%q: %v", s.PID(), err)
	}
	s.do(syscall.Kill(number, syscall.SIGKILL))
	s.configure("50000", tunedtest.Sysctl+"=50000", "# nothing")
	s.Eventually(t, tunedtest.Original, 20*time.Second)
	s.configure("50000")
	s.Eventually(t, "50000", 20*time.Second)

	// Uninstalled, with the controllers gone: the policies first. The garbage collector, which is not here, would end the pod.
	s.do(controllers.Terminate(t, 30*time.Second))
	s.hosted.Kubectl(t, "delete", "validatingadmissionpolicybindings", "--selector=app.kubernetes.io/name=tuning")
	if output := s.clean(); !strings.Contains(output, "daemonset/openshift-cluster-node-tuning-operator/tuned: deleted") {
		t.Errorf("clean says %s", output)
	}
	s.do(operand.Terminate(t, 30*time.Second))
	if got := s.Value(t); got != tunedtest.Original {
		t.Errorf("%s is %s", tunedtest.Sysctl, got)
	}
}

// clean is partition-controller clean, with the rights of administrators.
func (s *story) clean() string {
	s.Helper()
	said := ""
	testenv.Eventually(s.T, 30*time.Second, func() error { // kube-apiserver learns a little later that a policy is gone
		process := testenv.Run(s.T, "partition-controller", "clean", "--controller=tuning", "--kubeconfig="+s.home.Kubeconfig, "--hosted-kubeconfig="+s.hosted.Kubeconfig)
		err := process.Wait(s.T, 30*time.Second)
		said += process.Output()
		return err
	})
	return said
}
