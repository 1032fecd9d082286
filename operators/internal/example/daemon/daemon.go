// SPDX-License-Identifier: Apache-2.0

// Package daemon is the node's side of the companion example: it writes what the copies have into an annotation of its Node.
// A policy lets it write nothing else, and to no other Node.
package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Namespace is where the copies and the daemon are.
	Namespace = "partition-example-node"
	// Annotation has the data of all copies: {"name": {"key": "value"}}. A Node has none if there is no copy.
	Annotation = "example.workload.openshift.io/data"
)

// Copied is on ConfigMaps that are copied, and on their copies.
var Copied = labels.Set{"example.workload.openshift.io/copied": "true"}

// NewCommand returns the daemon, a command of partition-node.
func NewCommand() *cobra.Command {
	return &cobra.Command{Use: "example", Args: cobra.NoArgs, RunE: func(command *cobra.Command, _ []string) error {
		config, err := rest.InClusterConfig()
		if err != nil {
			return err
		}
		c, err := client.New(config, client.Options{})
		if err != nil {
			return err
		}
		var last []byte
		wait.UntilWithContext(command.Context(), func(ctx context.Context) {
			patch, err := patch(ctx, c)
			if err == nil && !bytes.Equal(patch, last) {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: os.Getenv("NODE_NAME")}}
				err = c.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
			}
			if err != nil {
				command.PrintErrln("Error:", err)
				return
			}
			last = patch
		}, time.Second)
		return nil
	}}
}

// patch makes a Node's annotation what the copies have.
func patch(ctx context.Context, c client.Reader) ([]byte, error) {
	var copies corev1.ConfigMapList
	if err := c.List(ctx, &copies, client.InNamespace(Namespace), client.MatchingLabels(Copied)); err != nil {
		return nil, err
	}
	data := map[string]map[string]string{}
	for i := range copies.Items {
		data[copies.Items[i].Name] = copies.Items[i].Data
	}
	var value any // null removes the annotation
	if len(data) > 0 {
		text, err := json.Marshal(data)
		if err != nil {
			return nil, err
		}
		value = string(text)
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{Annotation: value}}})
}
