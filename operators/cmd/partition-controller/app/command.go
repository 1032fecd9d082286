// SPDX-License-Identifier: Apache-2.0

// Package app is the command partition-controller: it reads the configuration, and runs the
// companions that it is given in one manager, with probes, metrics, certificates and leader
// election. It also removes what a companion has left on nodes. It knows no rule of any companion.
package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/companion"
)

// podNamespace is where a pod finds the name of its namespace
// (upstream, plugin/pkg/admission/serviceaccount/admission.go).
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// NewCommand returns the command for these companions.
func NewCommand(companions ...companion.Companion) *cobra.Command {
	var (
		path       string
		controller string
		parts      []string
		logging    = logsapi.NewLoggingConfiguration()
	)
	command := &cobra.Command{
		Use:   "partition-controller",
		Short: "Run the controllers and webhooks of a companion of a partitioned cluster",
		Long: `Run the controllers and webhooks of a companion of a partitioned cluster, until
SIGTERM.

The configuration is a file of the kind ControllerConfiguration, version
` + configv1alpha1.GroupVersion.String() + `.
Controllers run on the replica that leads, webhooks on all of them. Run them in
processes of their own, with --parts, so that what reaches the webhooks finds
none of the controllers' rights.

Companions: ` + strings.Join(names(companions), ", "),
		Version: version.Get().GitVersion,
		Args:    cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			gate := featuregate.NewFeatureGate()
			if err := logsapi.AddFeatureGates(gate); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(logging, gate); err != nil {
				return err
			}
			ctrl.SetLogger(klog.Background())
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			namespace, err := os.ReadFile(podNamespace)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			config, err := configv1alpha1.Read(path, strings.TrimSpace(string(namespace)))
			if err != nil {
				return err
			}
			if command.Flags().Changed("controller") {
				config.Controller = controller
			}
			if command.Flags().Changed("parts") {
				config.Parts = nil
				for _, part := range parts {
					config.Parts = append(config.Parts, configv1alpha1.Part(part))
				}
			}
			if err := configv1alpha1.Validate(config).ToAggregate(); err != nil {
				return fmt.Errorf("configuration %s, with its flags: %w", path, err)
			}
			selected, err := choose(companions, config.Controller)
			if err != nil {
				return err
			}
			if err := companion.Configure(selected, config); err != nil {
				return fmt.Errorf("configuration %s: %w", path, err)
			}
			home, err := clientConfig(config.ClientConnection)
			if err != nil {
				return err
			}
			var hosted *rest.Config
			if config.HostedConnection.Kubeconfig != "" {
				if hosted, err = clientConfig(config.HostedConnection); err != nil {
					return err
				}
			}
			return run(command.Context(), home, hosted, config, selected, companions)
		},
	}
	command.Flags().StringVar(&path, "config", "", "file with the configuration")
	command.Flags().StringSliceVar(&parts, "parts", nil, "controllers, webhooks or both, instead of those of the configuration")
	command.PersistentFlags().StringVar(&controller, "controller", "", "companion, instead of that of the configuration")
	logsapi.AddFlags(logging, command.PersistentFlags())
	command.AddCommand(newCleanCommand(companions, &controller))
	return command
}

func names(companions []companion.Companion) (names []string) {
	for _, c := range companions {
		names = append(names, c.Name())
	}
	return names
}

// choose returns the companion of this name.
func choose(companions []companion.Companion, chosen string) (companion.Companion, error) {
	at := slices.Index(names(companions), chosen)
	switch {
	case chosen == "":
		return nil, fmt.Errorf("no companion is selected; set controller in the configuration, or --controller, to one of %s", strings.Join(names(companions), ", "))
	case at < 0:
		return nil, fmt.Errorf("controller: there is no companion %q; there are %s", chosen, strings.Join(names(companions), ", "))
	}
	return companions[at], nil
}

// clientConfig is that of a kubeconfig, or of the pod, or what kubectl would use.
func clientConfig(connection componentbaseconfig.ClientConnectionConfiguration) (config *rest.Config, err error) {
	err = rest.ErrNotInCluster
	if connection.Kubeconfig == "" {
		config, err = rest.InClusterConfig()
	}
	if errors.Is(err, rest.ErrNotInCluster) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = connection.Kubeconfig
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	}
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = connection.QPS, int(connection.Burst)
	return config, nil
}
