// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// full is the runtime of a node whose containers take more than gRPC's default of 4 MiB to list.
type full struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (full) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	response := &runtimeapi.ListContainersResponse{}
	for range 1000 {
		response.Containers = append(response.Containers, &runtimeapi.Container{Annotations: map[string]string{"a": strings.Repeat("x", 8<<10)}})
	}
	return response, nil
}

func TestTheContainersOfAFullNodeAreRead(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, full{})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client, closeConnection, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeConnection() }()
	response, err := client.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(response.Containers) != 1000 {
		t.Errorf("%d containers are read: %v", len(response.GetContainers()), err)
	}
}
