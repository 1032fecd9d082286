// SPDX-License-Identifier: Apache-2.0

// Package gather writes what a report of a fault needs of a whole cluster into one archive: what the API says of
// nodes and companions, and of each node the record that kubectl partition audit makes there, by a pod that it removes again.
//
// It never reads a Secret, and of other objects it leaves out environments, volumes and the annotations of others. What
// could not be read is in the archive's file errors. It knows no command line.
package gather

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/status"
)

// Options say what to gather.
type Options struct {
	// Image is that of kubectl-partition, of which a pod runs on each node. Empty means that no node is read.
	Image string
	// Nodes selects the nodes by their labels; empty means all.
	Nodes string
	// AtOnce is on how many nodes a pod runs at the same time, and NodeTimeout how long each may take. Zero
	// means ten nodes and two minutes.
	AtOnce      int
	NodeTimeout time.Duration
	// Say is told what is under way; nil says nothing.
	Say func(format string, args ...any)
}

// The README of an archive says what is in it, and so does the user's page.
const contents = `README                        this text
cluster/versions.json         versions of kube-apiserver and of this program
cluster/status.json           what kubectl partition status says
cluster/KIND.json             nodes, namespaces with annotations of ours, locks, and custom resources of ours and of others that companions read
kube-apiserver/               the plugin's metrics of each kube-apiserver, and the flags about admission of those that run as static pods
companions/NAMESPACE/         configuration, workloads, pods and Events of each companion, and the end of each container's log
nodes/NODE/                   the record of kubectl partition audit; read it with kubectl partition audit --from
errors                        what could not be read, and what was left out for its size

It has no Secrets, no environment, no volumes, and no annotations but ours. It has the names of nodes, namespaces, pods and
processes, and what logs and configurations say.
`

// archive is what is written. Its first error stays.
type archive struct {
	*tar.Writer
	top     string
	at      time.Time
	err     error
	missing []string
}

// add adds a file.
func (a *archive) add(name string, data []byte) {
	if a.err == nil {
		a.err = a.WriteHeader(&tar.Header{Name: a.top + "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: a.at, Typeflag: tar.TypeReg})
	}
	if a.err == nil {
		_, a.err = a.Write(data)
	}
}

// addJSON adds a file of a value.
func (a *archive) addJSON(name string, value any) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		a.lacks(name, err)
		return
	}
	a.add(name, append(data, '\n'))
}

// lacks notes that something could not be read, unless nothing went wrong.
func (a *archive) lacks(what string, err error) {
	if err != nil {
		a.missing = append(a.missing, what+": "+output.Printable(err.Error()))
	}
}

// gatherer reads a cluster into an archive.
type gatherer struct {
	Options
	client  kubernetes.Interface
	dynamic dynamic.Interface
	archive *archive
}

// Write writes an archive of the cluster, a gzipped tar in which all files are below the directory top. missing
// are the lines of the archive's file errors. Without an error the archive is complete but for these; the error is
// that of the writer, of a cluster that does not answer, or of a context that has ended.
func Write(ctx context.Context, config *rest.Config, options Options, top string, w io.Writer) (missing []string, err error) {
	options.AtOnce = cmp.Or(options.AtOnce, 10)
	options.NodeTimeout = cmp.Or(options.NodeTimeout, 2*time.Minute)
	if options.Say == nil {
		options.Say = func(string, ...any) {}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // the requests are few at the same time
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	// It ends here if the cluster does not answer.
	stands, err := status.Read(ctx, config, status.Options{})
	if err != nil {
		return nil, err
	}
	compressed := gzip.NewWriter(w)
	a := &archive{Writer: tar.NewWriter(compressed), top: top, at: time.Now().UTC().Truncate(time.Second)}
	g := &gatherer{Options: options, client: client, dynamic: custom, archive: a}
	a.add("README", fmt.Appendf(nil, "Gathered by kubectl partition gather, %s.\n\n%s", a.at.Format(time.RFC3339), contents))
	g.addStatus(ctx, stands)
	g.addCluster(ctx)
	g.addCompanions(ctx)
	g.addNodes(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lines := ""
	if len(a.missing) > 0 {
		lines = strings.Join(a.missing, "\n") + "\n"
	}
	a.add("errors", []byte(lines))
	return a.missing, errors.Join(a.err, a.Close(), compressed.Close())
}

// addStatus adds what kube-apiservers say.
func (g *gatherer) addStatus(ctx context.Context, stands *status.Status) {
	versions := map[string]any{"program": version.Get()}
	of, err := g.client.Discovery().ServerVersion()
	g.archive.lacks("the version of kube-apiserver", err)
	if err == nil {
		versions["kube-apiserver"] = of
	}
	g.archive.addJSON("cluster/versions.json", versions)
	g.archive.addJSON("cluster/status.json", stands)
	for _, unknown := range stands.Unknown {
		g.archive.lacks(unknown.What, errors.New(unknown.Error))
	}
	for _, server := range stands.Servers {
		if server.Error != "" {
			g.archive.lacks("metrics of "+server.URL, errors.New(server.Error))
			continue
		}
		g.archive.add("kube-apiserver/"+fileName(strings.TrimPrefix(server.URL, "https://"))+".metrics", []byte(server.Metrics))
	}
	pods, err := g.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-apiserver"})
	g.archive.lacks("the flags of kube-apiserver", err)
	if err != nil || len(pods.Items) == 0 {
		return
	}
	flags := map[string][]string{}
	for i := range pods.Items {
		flags[pods.Items[i].Name] = admissionFlags(&pods.Items[i])
	}
	g.archive.addJSON("kube-apiserver/flags.json", flags)
}

// fileName replaces what not every system takes in a name.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|[]`, r) {
			return '_'
		}
		return r
	}, name)
}
