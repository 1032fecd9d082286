// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/operators/e2e/internal/rig"
)

const (
	// sysctl is what the sample sets, to 11.
	sysctl = "/proc/sys/kernel/printk_ratelimit_burst"
	tuning = "--namespace=openshift-cluster-node-tuning-operator"
)

// kernel returns what this host's kernel has.
func kernel(t *testing.T) string {
	t.Helper()
	value, err := os.ReadFile(sysctl)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(value))
}

// story is both clusters.
type story struct {
	*testing.T
	management, hosted *rig.Cluster
}

// await waits until a condition holds, and logs how long that took.
func (s *story) await(limit time.Duration, what string, condition func() error) {
	s.Helper()
	began := time.Now()
	s.hosted.WaitFor(s.T, limit, what, condition)
	s.Logf("%s after %s", what, time.Since(began).Round(10*time.Millisecond))
}

func (s *story) awaitKernel(limit time.Duration, want string) {
	s.Helper()
	s.await(limit, "the kernel has "+want, func() error {
		if got := kernel(s.T); got != want {
			return fmt.Errorf("it has %s", got)
		}
		return nil
	})
}

// change replaces a part of a ConfigMap of the user's.
func (s *story) change(name, old, replacement string) {
	s.Helper()
	manifest := s.management.Call(s.T, "get", "configmap", "--namespace=clusters", name, "--output=yaml")
	if !strings.Contains(manifest, old) {
		s.Fatalf("ConfigMap %s has no %q:\n%s", name, old, manifest)
	}
	if output, err := s.management.Try(s.T, strings.ReplaceAll(manifest, old, replacement), "replace", "--filename=-"); err != nil {
		s.Fatal(output, err)
	}
}

func (s *story) pool(patch string) {
	s.Helper()
	s.management.Call(s.T, "patch", "nodepool", "--namespace=clusters", "pool-a", "--type=merge", "--patch="+patch)
}

// awaitCondition waits until a condition of the pool has a status, and a message with all of these texts.
func (s *story) awaitCondition(name, status string, texts ...string) {
	s.Helper()
	s.await(5*time.Second, name+" is "+status, func() error {
		got := s.management.Call(s.T, "get", "nodepool", "--namespace=clusters", "pool-a", fmt.Sprintf(`--output=jsonpath={.status.conditions[?(@.type=="%s")].status} {.status.conditions[?(@.type=="%[1]s")].message}`, name))
		if !strings.HasPrefix(got, status+" ") || slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(got, text) }) {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// refused tries something as a hosted administrator.
func (s *story) refused(want string, arguments ...string) {
	s.Helper()
	if output, err := s.hosted.Try(s.T, "", arguments...); err == nil || !strings.Contains(output, want) {
		s.Errorf("kubectl %s: %s (%v), want that it is refused with %q", strings.Join(arguments, " "), output, err, want)
	}
}

// operand returns the pod that tunes the node, and how often its container was started again.
func (s *story) operand() string {
	s.Helper()
	return s.hosted.Call(s.T, "get", "pods", tuning, "--output=jsonpath={.items[*].metadata.uid} {.items[*].status.containerStatuses[*].restartCount}")
}

// lacks returns an error for a report that has not, under each heading, a line that begins with what is wanted there.
func lacks(report string, want map[string]string) error {
	sections := map[string]string{}
	for _, section := range strings.Split(report, "\n\n") {
		heading, lines, _ := strings.Cut(strings.TrimSpace(section), "\n")
		sections[heading] = lines
	}
	for heading, line := range want {
		if !regexp.MustCompile(`(?m)^` + line).MatchString(sections[heading]) {
			return fmt.Errorf("under %q no line matches %s:\n%s", heading, line, report)
		}
	}
	return nil
}

// killTuneD ends TuneD, and not what supervises it, as a crash would.
func killTuneD(t *testing.T) {
	t.Helper()
	processes, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	supervisor := 0
	for _, process := range processes {
		if arguments, err := process.CmdLine(); err == nil && len(arguments) > 1 && filepath.Base(arguments[0]) == "partition-node" && arguments[1] == "tuned" {
			supervisor = process.PID
		}
	}
	for _, process := range processes {
		if stat, err := process.Stat(); err == nil && supervisor != 0 && stat.PPID == supervisor {
			if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("there is no TuneD below process %d", supervisor)
}

// The stories of a pool's configuration, one after another.
func TestAPoolsConfigurationReachesItsNode(t *testing.T) {
	before := kernel(t)
	if err := cluster.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := management.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := scripts.Run("up-hosted.sh", nil, controller, filepath.Join(config.Bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	t.Logf("the companions and the sample are there after %s", time.Since(began).Round(time.Second))
	of := func(c *host.Cluster) *rig.Cluster {
		return &rig.Cluster{Client: c.Client, Kubectl: filepath.Join(config.Bin, "kubectl"), Kubeconfig: c.Config.Paths.Kubeconfig(), Pause: 50 * time.Millisecond, Limit: time.Minute}
	}
	s := &story{t, of(management), of(cluster)}

	if got := s.hosted.Call(t, "get", "node", host.NodeName, `--output=jsonpath={.metadata.labels.hypershift\.openshift\.io/nodePool}`); got != "pool-a" {
		t.Errorf("the node's pool is %q", got)
	}
	s.awaitKernel(10*time.Second, "11")

	t.Run("make report-hosted says what arrived where", func(t *testing.T) {
		s.T = t
		s.await(10*time.Second, "the report is complete", func() error {
			report, err := scripts.Run("report-hosted.sh", nil, s.hosted.Kubectl)
			if err != nil {
				return err
			}
			return lacks(report, map[string]string{
				"Management cluster: NodePools":                          `clusters +pool-a +hosted +True +True`,
				"Management cluster: the hosted cluster's control plane": `tuned-pool-a .*hypershift\.openshift\.io/nodePool=pool-a`,
				"Hosted cluster: KubeletConfigs":                         `kubelet-pool-a `,
				"Hosted cluster: nodes":                                  host.NodeName + ` +Ready .* pool-a$`,
				"Hosted cluster: Tuneds":                                 `sample\S* +pool-a +True`,
				"Hosted cluster: what TuneD says on each node":           host.NodeName + ` +sample +True +False`,
				"This host, whose kernel is the node's":                  `kernel\.printk_ratelimit_burst = 11`,
			})
		})
	})
	t.Run("TuneD of the operand's image can load each of its plugins", func(t *testing.T) {
		const load = `import importlib, pkgutil, tuned.plugins as plugins
for module in pkgutil.iter_modules(plugins.__path__): importlib.import_module("tuned.plugins." + module.name)`
		s.hosted.Call(t, "exec", tuning, "daemonset/tuned", "--", "/usr/bin/python3", "-I", "-c", load)
	})
	t.Run("an edit reaches the kernel, and restarts nothing", func(t *testing.T) {
		s.T = t
		pod := s.operand()
		s.change("sysctls", "burst=11", "burst=12")
		s.awaitKernel(10*time.Second, "12")
		if got := s.operand(); got != pod {
			t.Errorf("the operand was %s, and is %s", pod, got)
		}
	})
	t.Run("what a hosted administrator changes is refused", func(t *testing.T) {
		s.T = t
		for _, tuned := range strings.Fields(s.hosted.Call(t, "get", "tuneds", tuning, "--output=name")) {
			s.refused("change spec.tuningConfig of the NodePool there", "patch", tuning, tuned, "--type=merge", `--patch={"spec":{"recommend":[]}}`)
		}
		s.refused("change it on the management cluster", "delete", "configmap", "--namespace=openshift-config-managed", "kubelet-pool-a")
		s.refused("change it on the management cluster", "patch", "configmap", "--namespace=openshift-config-managed", "kubelet-pool-a", "--type=merge", `--patch={"data":{"config":"x"}}`)
		s.refused("what the management cluster recorded", "label", "node", host.NodeName, "hypershift.openshift.io/nodePool=x", "--overwrite")
	})
	t.Run("without the policies it is undone before the kernel has it", func(t *testing.T) {
		s.T = t
		s.hosted.Call(t, "delete", "validatingadmissionpolicybindings", "--all")
		stop, moved := make(chan struct{}), make(chan string, 1)
		go func() {
			for {
				select {
				case <-stop:
					moved <- ""
					return
				case <-time.After(5 * time.Millisecond):
					if value, err := os.ReadFile(sysctl); err != nil || strings.TrimSpace(string(value)) != "12" {
						moved <- fmt.Sprintf("%s (%v)", value, err)
						return
					}
				}
			}
		}()
		tuned := strings.TrimSpace(s.hosted.Call(t, "get", "tuneds", tuning, "--selector=hypershift.openshift.io/nodePoolName=pool-a", "--output=jsonpath={.items[?(@.spec.recommend[0].profile==\"sample\")].metadata.name}"))
		s.await(20*time.Second, "a change of the Tuned is let through", func() error {
			_, err := s.hosted.Try(t, "", "patch", tuning, "tuned/"+tuned, "--type=merge", `--patch={"spec":{"profile":[{"name":"sample","data":"[sysctl]\nkernel.printk_ratelimit_burst=77\n"}]}}`)
			return err
		})
		s.await(10*time.Second, "the Tuned is repaired", func() error {
			if got := s.hosted.Call(t, "get", tuning, "tuned/"+tuned, "--output=jsonpath={.spec.profile[0].data}"); !strings.Contains(got, "burst=12") {
				return fmt.Errorf("it has %s", got)
			}
			return nil
		})
		s.hosted.Call(t, "delete", "configmap", "--namespace=openshift-config-managed", "kubelet-pool-a")
		s.await(10*time.Second, "the KubeletConfig is back", func() error {
			output, err := s.hosted.Try(t, "", "get", "configmap", "--namespace=openshift-config-managed", "kubelet-pool-a")
			if err != nil {
				return fmt.Errorf("%w: %s", err, output)
			}
			return nil
		})
		s.hosted.Call(t, "label", "node", host.NodeName, "hypershift.openshift.io/nodePool=x", "--overwrite")
		s.await(10*time.Second, "the node has its pool again", func() error {
			if got := s.hosted.Call(t, "get", "node", host.NodeName, `--output=jsonpath={.metadata.labels.hypershift\.openshift\.io/nodePool}`); got != "pool-a" {
				return fmt.Errorf("it has %q", got)
			}
			return nil
		})
		close(stop)
		if value := <-moved; value != "" {
			t.Errorf("meanwhile the kernel had %s", value)
		}
	})
	t.Run("a typo is named, and changes nothing", func(t *testing.T) {
		s.T = t
		s.change("sysctls", "    recommend:", "   recommend:")
		s.awaitCondition("ValidTuningConfig", "False", "ConfigMap clusters/sysctls, key tuning, document 1, line 14")
		if got := kernel(t); got != "12" {
			t.Errorf("the kernel has %s", got)
		}
		s.change("sysctls", "   recommend:", "    recommend:")
		s.awaitCondition("ValidTuningConfig", "True")
	})
	t.Run("a second KubeletConfig is named, and both go from both clusters", func(t *testing.T) {
		s.T = t
		s.management.Call(t, "create", "configmap", "--namespace=clusters", "second", "--from-literal=config="+s.management.Call(t, "get", "configmap", "--namespace=clusters", "kubelet", "--output=jsonpath={.data.config}"))
		s.pool(`{"spec":{"config":[{"name":"second"},{"name":"kubelet"}]}}`)
		s.awaitCondition("ValidMachineConfig", "False", "ConfigMap clusters/second", "remove")
		s.pool(`{"spec":{"config":[{"name":"kubelet"}]}}`)
		s.awaitCondition("ValidMachineConfig", "True")
		s.pool(`{"spec":{"config":null}}`)
		for cluster, namespace := range map[*rig.Cluster]string{s.management: "clusters-hosted", s.hosted: "openshift-config-managed"} {
			s.await(20*time.Second, "no KubeletConfig is left in "+namespace, func() error {
				if left := cluster.Call(t, "get", "configmaps", "--namespace="+namespace, "--selector=hypershift.openshift.io/kubeletconfig-config", "--output=name"); left != "" {
					return fmt.Errorf("there is %s", left)
				}
				return nil
			})
		}
	})
	t.Run("a crash of TuneD loses no original value", func(t *testing.T) {
		s.T = t
		killTuneD(t)
		s.pool(`{"spec":{"tuningConfig":[{"name":"nothing"}]}}`)
		s.awaitKernel(30*time.Second, before)
	})
	s.T = t
	s.pool(`{"spec":{"tuningConfig":[{"name":"sysctls"},{"name":"nothing"}]}}`)
	s.awaitKernel(10*time.Second, "12")
	if err := down(); err != nil {
		t.Fatal(err)
	}
	if got := kernel(t); got != before {
		t.Errorf("after the end the kernel has %s, want %s", got, before)
	}
	for _, path := range []string{host.Dir, "/run/partition-node", "/var/lib/partition-node"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("there still is %s", path)
		}
	}
}
