// SPDX-License-Identifier: Apache-2.0

// Command cluster runs a partitioned single-node cluster on this host, with a
// sample workload, and reports what runs where.
//
// It knows flags and the sample. Packages host and vm know how a cluster is started.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"workload.openshift.io/kubernetes/cluster/host"
)

//go:embed sample
var sample embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), host.EndSignals()...)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Run a partitioned single-node cluster on this host",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	var config host.Config
	var policies []string
	var withManagement bool
	up := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster with a sample workload and report what runs where",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return alone(host.Dir, func() error { return up(cmd.Context(), config, policies, withManagement) })
		},
	}
	up.Flags().StringVar(&config.Bin, "bin", "", "directory of the Kubernetes binaries")
	up.Flags().StringVar(&config.Tools, "tools", "", "directory of etcd, containerd, runc and the CNI plugins")
	up.Flags().StringVar(&config.Tree, "tree", "", "source tree of the Kubernetes release")
	up.Flags().StringVar(&config.Pinning, "pinning", `{"management": {"cpuset": "0"}}`, "content of the pinning file")
	up.Flags().StringArrayVar(&policies, "policy", nil, "file with admission policies and their roles, created before the sample")
	up.Flags().BoolVar(&withManagement, "management", false, "also start a management cluster: a control plane without a node, to which this cluster is a hosted one")
	up.Flags().StringVar(&config.CPUManagerPolicy, "cpu-manager-policy", "static", "the kubelet's CPU manager policy")
	for _, name := range []string{"bin", "tools", "tree"} {
		utilruntime.Must(up.MarkFlagRequired(name))
	}
	root.AddCommand(up, &cobra.Command{
		Use:   "fit",
		Short: "Check, before anything is built, whether up could start a cluster on this host",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return host.New(host.Config{}).Fit(cmd.Context())
		},
	}, &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove every trace of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return alone(host.Dir, func() error { return host.New(host.Config{Progress: progress(time.Now())}).Down(cmd.Context()) })
		},
	})
	root.AddCommand(runCommand(), restartCommand(), logsCommand(), environmentCommand(), vmCommand())
	return root
}

// management describes the management cluster next to this one.
func management(config host.Config) *host.Cluster {
	return host.New(config.Beside(1))
}

func runCommand() *cobra.Command {
	var env []string
	run := &cobra.Command{
		Use:   "run NAME -- PROGRAM [ARGUMENT...]",
		Short: "Start a program, such as a controller, that ends with the cluster; it replaces the one of that name",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			program, err := filepath.Abs(args[1])
			if err != nil {
				return err
			}
			return alone(host.Dir, func() error {
				component, err := host.New(host.Config{}).Run(args[0], env, append([]string{program}, args[2:]...)...)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "%s is process %d; its log is %s\n", args[0], component.PID(), component.Log())
				return nil
			})
		},
	}
	run.Flags().StringArrayVar(&env, "env", nil, "a variable of its environment, NAME=VALUE")
	return run
}

func restartCommand() *cobra.Command {
	bin := ""
	restart := &cobra.Command{
		Use:   "restart COMPONENT",
		Short: "Restart a component with the same arguments, and with the program that is now at its path",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return alone(host.Dir, func() error {
				cluster := host.New(host.Config{})
				if err := cluster.Attach(); err != nil {
					return err
				}
				if err := runsFrom(cluster, args[0], bin); err != nil {
					return err
				}
				start := time.Now()
				if err := cluster.Restart(cmd.Context(), args[0]); err != nil {
					return err
				}
				progress(start)("%s is ready again", args[0])
				return nil
			})
		},
	}
	restart.Flags().StringVar(&bin, "bin", "", "directory from which the component must run, if it has such a program")
	return restart
}

// runsFrom returns an error if a component does not run from a directory that has its program: it would be started again
// as it was, and not as it was built there.
func runsFrom(cluster *host.Cluster, name, bin string) error {
	if _, err := cluster.Component(name); err != nil || bin == "" {
		return err
	}
	built, err := filepath.Abs(filepath.Join(bin, name))
	if err != nil {
		return err
	}
	if built, err = filepath.EvalSymlinks(built); err != nil {
		return nil // it is none of these programs
	}
	runs, err := cluster.Program(name)
	if err != nil {
		return nil // Restart says what is wrong
	}
	if runs != built {
		return fmt.Errorf("%s runs from %s, but %s was built: name the release that is up with RELEASE", name, runs, built)
	}
	return nil
}

func logsCommand() *cobra.Command {
	var lines int
	var follow bool
	logs := &cobra.Command{
		Use:   "logs COMPONENT",
		Short: "Print the end of a component's log",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			component, err := host.New(host.Config{}).Component(args[0])
			if err != nil {
				return err
			}
			if _, err := os.Stat(component.Log()); err != nil {
				return fmt.Errorf("%w; is a cluster up?", err)
			}
			tail := exec.CommandContext(cmd.Context(), "tail", fmt.Sprintf("--lines=%d", lines))
			if follow {
				tail.Args = append(tail.Args, "--follow=name", "--retry")
			}
			tail.Args = append(tail.Args, component.Log())
			tail.Stdout, tail.Stderr = os.Stdout, os.Stderr
			err = tail.Run()
			if cmd.Context().Err() != nil {
				return nil // an interrupt is how a user ends tail
			}
			return err
		},
	}
	logs.Flags().IntVar(&lines, "lines", 100, "number of lines")
	logs.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing what the component adds")
	return logs
}

func environmentCommand() *cobra.Command {
	ofManagement := false
	environment := &cobra.Command{
		Use:   "environment",
		Short: "Print the variables with which clients in this shell find the cluster",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cluster := host.New(host.Config{})
			if ofManagement {
				// Clients of one are clients of the other: NO_PROXY is for both.
				if list := cluster.NoProxy(); list != "" {
					if err := os.Setenv("NO_PROXY", list); err != nil {
						return err
					}
				}
				cluster = management(host.Config{})
			}
			variables := "KUBECONFIG=" + cluster.Config.Paths.Kubeconfig()
			if list := cluster.NoProxy(); list != "" {
				variables += fmt.Sprintf(" NO_PROXY='%[1]s' no_proxy='%[1]s'", list)
			}
			fmt.Println(variables)
			return nil
		},
	}
	environment.Flags().BoolVar(&ofManagement, "management", false, "find the management cluster instead")
	return environment
}

// progress prints what is being done, and the time since the start.
func progress(start time.Time) func(string, ...any) {
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4s  %s\n", time.Since(start).Round(time.Second), fmt.Sprintf(format, args...))
	}
}

// alone runs what starts or ends the cluster, or the VMs, of a directory, unless tests have it, or another such command
// runs.
func alone(dir string, run func() error) error {
	if pid := host.Owner(dir); pid != 0 {
		return fmt.Errorf("process %d runs tests with %s; wait for its end, or end it with: kill -INT %[1]d", pid, dir)
	}
	unlock, err := host.Lock(dir)
	if err != nil {
		return err
	}
	return errors.Join(run(), unlock())
}

func up(ctx context.Context, config host.Config, policies []string, withManagement bool) error {
	config.Progress = progress(time.Now())
	for _, path := range []*string{&config.Bin, &config.Tools, &config.Tree} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	cluster := host.New(config)
	err := start(ctx, cluster, policies)
	if err == nil && withManagement {
		config.Progress("starting the management cluster")
		err = management(config).Up(ctx)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		// After an interrupt the cluster is not wanted. After a failure the user may look at it.
		return errors.Join(errors.New("interrupted"), cluster.Down(context.WithoutCancel(ctx)))
	case cluster.Exists():
		return fmt.Errorf("%w\nmake down removes what was started", err)
	}
	return err
}

// start starts the cluster with its policies, and its sample.
func start(ctx context.Context, cluster *host.Cluster, policies []string) error {
	if err := cluster.Up(ctx); err != nil {
		return err
	}
	for _, path := range policies {
		manifests, err := os.ReadFile(path)
		if err == nil {
			err = createAll(ctx, cluster, manifests)
		}
		if err != nil {
			return fmt.Errorf("policies %s: %w", path, err)
		}
		cluster.Config.Progress("created the policies of %s", path)
	}
	cluster.Config.Progress("node %s is Ready; starting the sample workload", host.NodeName)
	if err := startSample(ctx, cluster); err != nil {
		return err
	}
	// Long enough for the report to show CPU time.
	const work = 3 * time.Second
	select {
	case <-time.After(work):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// startSample creates the sample and waits until all of it runs.
func startSample(ctx context.Context, cluster *host.Cluster) error {
	manifests, err := sample.ReadFile("sample/workloads.yaml")
	if err == nil {
		err = createAll(ctx, cluster, manifests)
	}
	if err != nil {
		return err
	}
	static, err := sample.ReadFile("sample/static-pod.yaml")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(host.ManifestDir, "sample-static.yaml"), static, 0o644); err != nil {
		return err
	}
	const limit = 2 * time.Minute
	var waiting []string
	// Not poll.Until, which would repeat a request that failed.
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		pods, err := cluster.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		waiting = nil
		seen := 0
		for _, pod := range pods.Items {
			if strings.HasPrefix(pod.Namespace, "sample-") {
				seen++
			}
			if pod.Status.Phase != v1.PodRunning {
				waiting = append(waiting, pod.Namespace+"/"+pod.Name+" is "+string(pod.Status.Phase))
			}
		}
		const samplePods = 3
		return seen >= samplePods && len(waiting) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("the sample workload is not running after %s: %w: %s", limit, err, strings.Join(waiting, ", "))
	}
	return nil
}

// createAll creates the objects of a file.
func createAll(ctx context.Context, cluster *host.Cluster, manifests []byte) error {
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		if err != nil {
			return err
		}
		if err := create(ctx, cluster, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

func create(ctx context.Context, cluster *host.Cluster, object runtime.Object) error {
	var err error
	switch object := object.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		_, err = cluster.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, object, metav1.CreateOptions{})
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		_, err = cluster.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, object, metav1.CreateOptions{})
	case *rbacv1.ClusterRole:
		_, err = cluster.Client.RbacV1().ClusterRoles().Create(ctx, object, metav1.CreateOptions{})
	case *v1.Namespace:
		_, err = cluster.Client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{})
	case *v1.ResourceQuota:
		_, err = cluster.Client.CoreV1().ResourceQuotas(object.Namespace).Create(ctx, object, metav1.CreateOptions{})
	case *appsv1.Deployment:
		_, err = cluster.Client.AppsV1().Deployments(object.Namespace).Create(ctx, object, metav1.CreateOptions{})
	default:
		err = fmt.Errorf("this command cannot create an object of type %T", object)
	}
	return err
}
