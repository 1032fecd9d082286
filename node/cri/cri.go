// SPDX-License-Identifier: Apache-2.0

// Package cri connects to a node's container runtime.
package cri

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessage is the largest answer of a runtime, as upstream has it (k8s.io/cri-client, pkg/remote_runtime.go), in bytes.
// The default of gRPC is a quarter, and less than the list of a full node's containers.
const maxMessage = 16 << 20

// Dial returns a client of the runtime that listens at the path of a socket. Nothing is sent before the first call. Close
// ends the connection.
func Dial(socket string) (client runtimeapi.RuntimeServiceClient, closeConnection func() error, err error) {
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, nil, fmt.Errorf("runtime at %s: %w", socket, err)
	}
	return runtimeapi.NewRuntimeServiceClient(connection), connection.Close, nil
}
