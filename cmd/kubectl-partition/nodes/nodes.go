// SPDX-License-Identifier: Apache-2.0

// Package nodes reads through the API what [plan] needs to know of nodes.
package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"workload.openshift.io/kubernetes/node/plan"
	"workload.openshift.io/partition"
)

// Reader reads nodes through the API.
type Reader struct {
	Client kubernetes.Interface
	// Config is that of the client. With it the kubelet itself is asked for its configuration if
	// the API server may not be.
	Config *rest.Config
}

// concurrently is how many nodes are read at the same time.
const concurrently = 10

// Nodes reads nodes by their names or, if there are none, those that a label selector has. An
// error names the object and, if one is missing, the right.
func (r Reader) Nodes(ctx context.Context, names []string, selector string) ([]plan.Node, error) {
	var objects []v1.Node
	if len(names) == 0 {
		list, err := r.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, fmt.Errorf("nodes with the labels %q: %w%s", selector, err, right(err, "list", "nodes"))
		}
		if len(list.Items) == 0 {
			return nil, fmt.Errorf("no node has the labels %q", selector)
		}
		objects = list.Items
	}
	for _, name := range names {
		object, err := r.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("node %s: %w%s", name, err, right(err, "get", "nodes"))
		}
		objects = append(objects, *object)
	}
	nodes := make([]plan.Node, len(objects))
	workqueue.ParallelizeUntil(ctx, concurrently, len(objects), func(i int) { nodes[i] = r.node(ctx, &objects[i]) })
	return nodes, ctx.Err()
}

// right names the missing right, if that is what an error means.
func right(err error, verb, what string) string {
	if !apierrors.IsForbidden(err) {
		return ""
	}
	return fmt.Sprintf("; the missing right is %s on %s", verb, what)
}

func (r Reader) node(ctx context.Context, object *v1.Node) plan.Node {
	configuration, denied := r.configuration(ctx, object)
	n := plan.Seen(object, configuration)
	if denied != nil {
		n.ConfigurationDenied = denied.Error()
	}
	list, err := r.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", object.Name).String()})
	if err != nil {
		n.PodsDenied = err.Error() + right(err, "list", "pods, in all namespaces")
	} else {
		n.Pods = append([]v1.Pod{}, list.Items...)
		for i := range n.Pods {
			n.Pods[i].ManagedFields = nil // there may be many nodes
		}
	}
	// A cluster without DRA has no such kind.
	offered, err := r.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourcev1.ResourceSliceSelectorNodeName: object.Name, resourcev1.ResourceSliceSelectorDriver: plan.CPUDriver,
	}.String()})
	if err == nil {
		n.Offered = plan.OfferedBy(offered.Items)
	} else if !apierrors.IsNotFound(err) {
		n.OfferedDenied = err.Error() + right(err, "list", "resourceslices")
	}
	return n
}

// configuration asks the kubelet for the configuration with which it runs.
//
// The API server passes the question on, which takes the right nodes/proxy: a client with it may
// also run commands in every pod of the node. With nodes/configz, which allows only this
// question, the kubelet itself must be asked. It then learns the client's token, so the client
// asks only a kubelet whose certificate its own authority has signed, and only if it has to.
func (r Reader) configuration(ctx context.Context, object *v1.Node) (*kubeletconfig.KubeletConfiguration, error) {
	data, err := r.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(object.Name).SubResource("proxy").Suffix("configz").DoRaw(ctx)
	if apierrors.IsForbidden(err) && r.Config != nil && r.mayNotAsk(ctx, object.Name) {
		var direct error
		if data, direct = r.askKubelet(ctx, object); direct != nil {
			return nil, fmt.Errorf("the missing right is get on nodes/configz, if the kubelet at its own address can be reached from here and has a certificate that the cluster's authority has signed, or else get on nodes/proxy; the kubelet said: %w", direct)
		}
		err = nil
	}
	if err != nil {
		return nil, err
	}
	var answer struct {
		Configuration *kubeletconfig.KubeletConfiguration `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("configz: %w", err)
	}
	if answer.Configuration == nil {
		return nil, errors.New("configz: there is no kubeletconfig in the answer")
	}
	if _, err := partition.ParseCPUs(answer.Configuration.ReservedSystemCPUs); err != nil {
		return nil, fmt.Errorf("configz: reservedSystemCPUs: %w", err)
	}
	return answer.Configuration, nil
}

// mayNotAsk reports whether the API server forbids the client to ask a kubelet through
// it. The answer to the question itself does not say that: it may be the kubelet's own.
func (r Reader) mayNotAsk(ctx context.Context, node string) bool {
	review, err := r.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "proxy", Name: node},
	}}, metav1.CreateOptions{})
	return err == nil && !review.Status.Allowed
}

// kubeletTimeout is how long a kubelet has for an answer, and maxAnswer the most that is read of
// it, in bytes.
const (
	kubeletTimeout = 5 * time.Second
	maxAnswer      = 1 << 20
)

// askKubelet asks a kubelet at its own address.
func (r Reader) askKubelet(ctx context.Context, object *v1.Node) ([]byte, error) {
	if r.Config.Insecure {
		return nil, errors.New("nothing, since the client does not verify certificates")
	}
	address := ""
	for _, a := range object.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			address = a.Address
			break
		}
	}
	if address == "" {
		return nil, errors.New("nothing, since the Node has no InternalIP")
	}
	config := rest.CopyConfig(r.Config)
	config.TLSClientConfig.ServerName = ""
	config.Timeout = kubeletTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	url := "https://" + net.JoinHostPort(address, strconv.Itoa(int(object.Status.DaemonEndpoints.KubeletEndpoint.Port))) + "/configz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, data)
	}
	return data, err
}
