// Package sumpb has the messages and the service that go-plugin calls over gRPC.
package sumpb

import (
	"context"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Handshake is what both sides of go-plugin must agree on.
var Handshake = plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "KUBEWASM_PEERS", MagicCookieValue: "sum"}

// Plugins are the plugins of the program sumplugin.
var Plugins = plugin.PluginSet{"measure": measure{}}

// Measure is the service.
type Measure interface {
	Sum(ctx context.Context, req *SumRequest) (*SumResponse, error)
}

const method = "/kubewasm.bench.peers.v1.Measure/Sum"

// measure implements plugin.GRPCPlugin.
type measure struct{ plugin.NetRPCUnsupportedPlugin }

// GRPCServer implements plugin.GRPCPlugin.
func (measure) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "kubewasm.bench.peers.v1.Measure", HandlerType: (*Measure)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Sum", Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			req := new(SumRequest)
			if err := decode(req); err != nil {
				return nil, err
			}
			return srv.(Measure).Sum(ctx, req)
		}}},
	}, adder{})
	return nil
}

// GRPCClient implements plugin.GRPCPlugin.
func (measure) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return client{c}, nil
}

type client struct{ conn *grpc.ClientConn }

func (c client) Sum(ctx context.Context, req *SumRequest) (*SumResponse, error) {
	resp := new(SumResponse)
	return resp, c.conn.Invoke(ctx, method, req, resp)
}

// adder is the plugin.
type adder struct{}

func (adder) Sum(_ context.Context, req *SumRequest) (*SumResponse, error) {
	sum := float64(req.A) + float64(req.B) + float64(req.C) + req.E
	if req.D {
		sum++
	}
	return &SumResponse{Sum: sum}, nil
}
