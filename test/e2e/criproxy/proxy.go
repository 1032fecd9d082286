// SPDX-License-Identifier: Apache-2.0

// Package criproxy stands between a kubelet and its container runtime, and records what the
// kubelet asks for. It passes on every message unread, so it works with every version of the
// CRI. What it has recorded it decodes only when asked.
//
// A library such as grpc-proxy would replace [Proxy.pass] alone. But it does not show the messages of a
// stream, and these are what is recorded and changed here.
package criproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1" // registers the messages
)

// Call is a request of the kubelet.
type Call struct {
	// Method is the last part of the gRPC method, such as CreateContainer.
	Method string
	// Request is the decoded message. It is nil for a method that our version of the CRI does
	// not have.
	Request proto.Message
}

// Proxy passes on and records calls. [Listen] starts one.
type Proxy struct {
	server *grpc.Server
	client *grpc.ClientConn

	mu    sync.Mutex
	calls []raw
	// then has the functions of Then, by method.
	then map[string]func(answer proto.Message) error
}

// raw is a request as it was received.
type raw struct {
	method string
	data   []byte
}

// Listen starts a proxy that listens on a Unix socket and connects to the runtime's.
// [Proxy.Close] ends it.
func Listen(socket, runtime string) (*Proxy, error) {
	client, err := grpc.NewClient("unix://"+runtime, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(unread{}), grpc.MaxCallRecvMsgSize(mostBytes)))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	p := &Proxy{client: client}
	p.server = grpc.NewServer(grpc.ForceServerCodecV2(unread{}), grpc.UnknownServiceHandler(p.pass), grpc.MaxRecvMsgSize(mostBytes))
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

// mostBytes is the kubelet's limit for a message (k8s.io/cri-client).
const mostBytes = 16 << 20

// Close ends the proxy and its connections.
func (p *Proxy) Close() error {
	p.server.Stop()
	return p.client.Close()
}

// Forget drops what was recorded.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = nil
}

// Calls returns the requests since the last Forget, in the order in which they came.
func (p *Proxy) Calls() ([]Call, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := make([]Call, len(p.calls))
	for i, recorded := range p.calls {
		calls[i].Method = path.Base(recorded.method)
		message, err := newMessage(recorded.method, protoreflect.MethodDescriptor.Input)
		if err != nil {
			continue
		}
		if err := proto.Unmarshal(recorded.data, message); err != nil {
			return nil, fmt.Errorf("%s: %w", recorded.method, err)
		}
		calls[i].Request = message
	}
	return calls, nil
}

// Then calls a function with each answer to a method, such as RunPodSandbox, before the kubelet
// gets the answer. The function may do what another runtime would have done by then, and change
// the answer into that of such a runtime. If it returns an error, the kubelet gets the error
// instead.
func (p *Proxy) Then(method string, do func(answer proto.Message) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.then == nil {
		p.then = map[string]func(proto.Message) error{}
	}
	p.then[method] = do
}

// answered calls the function of Then for an answer, if there is one, and returns what the
// kubelet gets.
func (p *Proxy) answered(method string, data []byte) ([]byte, error) {
	p.mu.Lock()
	do := p.then[path.Base(method)]
	p.mu.Unlock()
	if do == nil {
		return data, nil
	}
	message, err := newMessage(method, protoreflect.MethodDescriptor.Output)
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(data, message); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if err := do(message); err != nil {
		return nil, err
	}
	return proto.Marshal(message)
}

// newMessage returns an empty request or answer of a method such as
// /runtime.v1.RuntimeService/CreateContainer.
func newMessage(method string, which func(protoreflect.MethodDescriptor) protoreflect.MessageDescriptor) (proto.Message, error) {
	service, name := path.Split(method)
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(path.Base(service)))
	if err != nil {
		return nil, err
	}
	descriptor, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not a service", service)
	}
	of := descriptor.Methods().ByName(protoreflect.Name(name))
	if of == nil {
		return nil, fmt.Errorf("%s has no method %s", service, name)
	}
	message, err := protoregistry.GlobalTypes.FindMessageByName(which(of).FullName())
	if err != nil {
		return nil, err
	}
	return message.New().Interface(), nil
}

// pass passes on one call, which may be a stream in either direction.
func (p *Proxy) pass(_ any, fromKubelet grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(fromKubelet)
	ctx, cancel := context.WithCancel(fromKubelet.Context())
	defer cancel()
	toRuntime, err := p.client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var message []byte
			if err := fromKubelet.RecvMsg(&message); err != nil {
				if errors.Is(err, io.EOF) {
					_ = toRuntime.CloseSend()
				} else {
					cancel()
				}
				return
			}
			p.mu.Lock()
			p.calls = append(p.calls, raw{method, message})
			p.mu.Unlock()
			if err := toRuntime.SendMsg(&message); err != nil {
				return // RecvMsg below returns the reason
			}
		}
	}()
	for {
		var message []byte
		if err := toRuntime.RecvMsg(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		message, err := p.answered(method, message)
		if err != nil {
			return err
		}
		if err := fromKubelet.SendMsg(&message); err != nil {
			return err
		}
	}
}

// unread is a codec that leaves messages as they are.
type unread struct{}

func (unread) Name() string { return "proto" }

func (unread) Marshal(v any) (mem.BufferSlice, error) {
	data, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not an unread message", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*data)}, nil
}

func (unread) Unmarshal(data mem.BufferSlice, v any) error {
	into, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is not a place for an unread message", v)
	}
	*into = data.Materialize()
	return nil
}
