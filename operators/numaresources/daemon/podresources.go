// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	podResourcesTimeout = 10 * time.Second
	// maxPodResources is the largest answer in bytes, as kubectl's and other clients' of this API
	// (k8s.io/kubernetes/pkg/kubelet/apis/podresources, defaultPodResourcesMaxSize).
	maxPodResources = 16 << 20
)

// podResources is the kubelet's API of what pods have.
type podResources struct {
	socket     string
	connection *grpc.ClientConn
	client     podresourcesv1.PodResourcesListerClient
}

// newPodResources returns a client that connects when it is used, and again after the kubelet has restarted.
func newPodResources(socket string) (*podResources, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPodResources)),
		// By default it may take two minutes until it sees that a kubelet is back.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, MaxDelay: longestWait}, MinConnectTimeout: podResourcesTimeout}))
	if err != nil {
		return nil, fmt.Errorf("podresources %s: %w", socket, err)
	}
	return &podResources{socket: socket, connection: connection, client: podresourcesv1.NewPodResourcesListerClient(connection)}, nil
}

// read returns what the kubelet gives away, and what each pod has.
func (p *podResources) read(ctx context.Context) (*podresourcesv1.AllocatableResourcesResponse, []*podresourcesv1.PodResources, error) {
	ctx, cancel := context.WithTimeout(ctx, podResourcesTimeout)
	defer cancel()
	allocatable, err := p.client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return nil, nil, fmt.Errorf("podresources %s: GetAllocatableResources: %w", p.socket, err)
	}
	list, err := p.client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("podresources %s: List: %w", p.socket, err)
	}
	return allocatable, list.GetPodResources(), nil
}

// run identifies one run of the kubelet: it makes the socket when it starts.
func (p *podResources) run() (os.FileInfo, error) {
	return os.Stat(p.socket)
}
