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

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/console"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
)

func newConsole(streams genericiooptions.IOStreams) *cobra.Command {
	c := newCompanion(streams)
	var account string
	var port uint16
	command := &cobra.Command{
		Use:   "console",
		Short: "Open the console of the companion cpupolicy",
		Long: `Forward a port to the console of the companion cpupolicy, and serve a page that signs a
browser in. Open the URL that is printed. The command ends with Ctrl-C.

You are signed in as the ServiceAccount of --as-service-account, for which a token is made
that only the console takes; or with the token of your kubeconfig, if that is for the
console. A token for kube-apiserver is never shown to the console.

The console's certificate is checked against the CA in the companion's webhook
configuration. The browser does not know that CA: compare the fingerprint.

You need the rights to get ValidatingWebhookConfigurations of the name
cpupolicy.workload.openshift.io; in the namespace partition-cpupolicy, to get the
Deployment, to list pods and to create pods/portforward; and with --as-service-account to
create serviceaccounts/token.

A connection that ends, as it does when the kubelet of the console's pod starts again, is
made again.

Exit codes: 0, or 2 if the console cannot be opened, or not again within five minutes.`,
		Example: `  kubectl partition console --as-service-account team-a/alice`,
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error { return c.console(command.Context(), account, port) },
	}
	command.Flags().StringVar(&account, "as-service-account", "", "sign in as this ServiceAccount, given as NAMESPACE/NAME")
	command.Flags().Uint16Var(&port, "port", 0, "the port of this host on which the console is; 0 takes a free one")
	c.flags(command)
	return command
}

func (c *companion) console(ctx context.Context, account string, port uint16) error {
	client, err := c.connect()
	if err != nil {
		return err
	}
	token := console.OfConfig(c.rest)
	if account != "" {
		namespace, name, is := strings.Cut(account, "/")
		if !is || namespace == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("--as-service-account %q must be NAMESPACE/NAME", account)
		}
		token = console.OfServiceAccount(client.Kube, namespace, name)
	}
	first := console.Opened{}
	return console.Open(ctx, console.Options{Config: c.rest, Client: client.Kube, Namespace: client.Namespace, Port: port, Token: token}, console.Events{
		Opened: func(now console.Opened) {
			switch {
			case first.Pod == "":
				first = now
				fmt.Fprintf(c.streams.Out, `Sign in:      %s
Console:      %s, in pod %s
Certificate:  SHA-256 %s
Ctrl-C ends this.
`, now.Page, now.Console, output.Printable(now.Pod), now.Fingerprint)
			case now.Pod == first.Pod && now.Fingerprint == first.Fingerprint:
				fmt.Fprintln(c.streams.Out, "Connected again.")
			default:
				first = now
				fmt.Fprintf(c.streams.Out, "Connected again, to pod %s; sign in once more.\nCertificate:  SHA-256 %s\n", output.Printable(now.Pod), now.Fingerprint)
			}
		},
		Lost: func(err error) {
			fmt.Fprintf(c.streams.ErrOut, "The connection has ended, and is tried again for five minutes: %s\n", output.Printable(err.Error()))
		},
	})
}
