// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/gather"
	"workload.openshift.io/kubernetes/node/audit"
)

type gatherOptions struct {
	genericiooptions.IOStreams
	gather.Options
	config *genericclioptions.ConfigFlags
	// top is the directory in the archive to.
	to, top       string
	force, noPods bool
}

func newGather(streams genericiooptions.IOStreams) *cobra.Command {
	o := &gatherOptions{IOStreams: streams, config: genericclioptions.NewConfigFlags(true)}
	command := &cobra.Command{
		Use:   "gather",
		Short: "Write what a report of a fault needs of a whole cluster into one archive",
		Long: `Write what a report of a fault needs of a whole cluster into one archive that only its owner
can read: what the API says of nodes and companions, logs of companions, and for each node the
record of kubectl partition audit.

To read a node, it starts a pod there in a namespace of its own, which it removes again, also
when it is interrupted. Such a pod may read the whole host: only an administrator of the cluster
may start it. Without the right to something, or if a node does not answer, the archive has the
rest, and its file errors says what is missing.

The archive has no Secrets, no environment of containers, and no annotations of others. It has
the names of nodes, namespaces, pods and processes, and the logs of companions.

Exit codes:
  0  the archive has everything
  1  the archive was written; its file errors names what it lacks
  2  no archive was written`,
		Example: `  # The whole cluster, with the image of the plugin for the pods on the nodes
  kubectl partition gather --image registry.example.com/partitioning/kubectl-partition:v1.37.2

  # Without pods on nodes
  kubectl partition gather --no-pods

  # The nodes of a role alone
  kubectl partition gather --image ... -l node-role.kubernetes.io/worker --to fault.tar.gz

  # Audit a node of the archive again
  tar xzf fault.tar.gz && kubectl partition audit --from fault/nodes/worker-1`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              steps(o),
	}
	flags := command.Flags()
	flags.StringVar(&o.Image, "image", "", "image of kubectl-partition for a pod on each node; in a pod, that of this pod by default")
	flags.BoolVar(&o.noPods, "no-pods", false, "read no node: start no pods")
	flags.StringVar(&o.to, "to", "", "archive to write; by default workload-partitioning-TIME.tar.gz in this directory")
	flags.BoolVar(&o.force, "force", false, "overwrite the archive")
	flags.StringVarP(&o.Nodes, "selector", "l", "", "labels of the nodes on which a pod runs; by default all")
	flags.IntVar(&o.AtOnce, "at-once", 10, "on how many nodes a pod runs at the same time")
	flags.DurationVar(&o.NodeTimeout, "node-timeout", 2*time.Minute, "how long reading a node may take")
	o.config.Namespace = nil // it is the whole cluster
	o.config.AddFlags(flags)
	command.MarkFlagsMutuallyExclusive("image", "no-pods")
	return command
}

func (o *gatherOptions) Complete(command *cobra.Command, _ []string) error {
	if o.to == "" {
		o.to = "workload-partitioning-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	o.Say = func(format string, args ...any) { fmt.Fprintf(o.ErrOut, format+"\n", args...) }
	if o.Image == "" && !o.noPods {
		var err error
		o.Image, err = imageOfThisPod(command.Context())
		if errors.Is(err, rest.ErrNotInCluster) {
			return errors.New("--image is missing: it names the image of kubectl-partition for a pod on each node; --no-pods reads no node")
		}
		if err != nil {
			return fmt.Errorf("the image of this pod, since --image is missing: %w", err)
		}
	}
	return nil
}

func (o *gatherOptions) Validate() error {
	var ok bool
	if o.top, ok = audit.ArchiveTop(o.to); !ok {
		return fmt.Errorf("--to is %q, and must end in .tar.gz or .tgz", o.to)
	}
	if o.AtOnce < 1 {
		return fmt.Errorf("--at-once is %d, and must be at least 1", o.AtOnce)
	}
	if o.NodeTimeout < time.Second {
		return fmt.Errorf("--node-timeout is %s, and must be at least 1s", o.NodeTimeout)
	}
	if _, err := labels.Parse(o.Nodes); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	if _, err := os.Lstat(o.to); err == nil && !o.force {
		return fmt.Errorf("nothing was written, because %s exists; --force overwrites it", o.to)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (o *gatherOptions) Run(ctx context.Context) error {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return err
	}
	var missing []string
	if err := replaceFileBy(o.to, 0o600, nil, func(w io.Writer) (err error) {
		missing, err = gather.Write(ctx, config, o.Options, o.top, w)
		return err
	}); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	fmt.Fprintln(o.Out, o.to)
	if len(missing) > 0 {
		o.Say("The archive lacks what its file errors names:")
		for _, line := range missing[:min(len(missing), mostRows)] {
			o.Say("- %s", line)
		}
		if rest := len(missing) - mostRows; rest > 0 {
			o.Say("... and %d more", rest)
		}
		return errFound
	}
	return nil
}

// imageOfThisPod returns the image of the pod in which this runs, such as one of oc adm must-gather.
func imageOfThisPod(ctx context.Context) (string, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return "", err
	}
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return "", err
	}
	name, err := os.Hostname()
	if of := os.Getenv("POD_NAME"); of != "" {
		name = of // with the host's network it has the host's name
	} else if err != nil {
		return "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	pod, err := client.CoreV1().Pods(string(namespace)).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return pod.Spec.Containers[0].Image, nil
}
