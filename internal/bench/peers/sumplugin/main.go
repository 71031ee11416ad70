// The plugin adds numbers, for go-plugin over gRPC.
package main

import (
	"github.com/hashicorp/go-plugin"

	"github.com/kubewasm/kubewasm/internal/bench/peers/sumpb"
)

func main() {
	plugin.Serve(&plugin.ServeConfig{HandshakeConfig: sumpb.Handshake, Plugins: sumpb.Plugins, GRPCServer: plugin.DefaultGRPCServer})
}
