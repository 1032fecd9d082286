// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// nic is a resource of two devices on NUMA node 0, which exist in name only.
const nic = "example.com/numa-nic"

// devicePlugin serves them.
type devicePlugin struct {
	v1beta1.UnimplementedDevicePluginServer
	ended chan struct{}
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	response := &v1beta1.ListAndWatchResponse{}
	for _, id := range []string{"nic-a", "nic-b"} {
		response.Devices = append(response.Devices, &v1beta1.Device{ID: id, Health: v1beta1.Healthy, Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 0}}}})
	}
	if err := stream.Send(response); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-stream.Context().Done():
	}
	return nil
}

func (p *devicePlugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &v1beta1.ContainerAllocateResponse{})
	}
	return response, nil
}

// registerDevices registers the plugin with the kubelet, whose directory for that is the same whatever its root directory is. It ends
// with the test.
func registerDevices(t *testing.T) {
	t.Helper()
	const socket = "e2e-numa-nic.sock"
	path := filepath.Join(v1beta1.DevicePluginPath, socket)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	plugin, server := &devicePlugin{ended: make(chan struct{})}, grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, plugin)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		close(plugin.ended)
		server.Stop()
		_ = os.Remove(path)
	})
	connection, err := grpc.NewClient("unix://"+v1beta1.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := v1beta1.NewRegistrationClient(connection).Register(t.Context(), &v1beta1.RegisterRequest{Version: v1beta1.Version, Endpoint: socket, ResourceName: nic}); err != nil {
		t.Fatal(err)
	}
}
