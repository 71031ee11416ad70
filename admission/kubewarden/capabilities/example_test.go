package capabilities_test

import (
	"context"
	"fmt"
	"log"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host"
)

// hosts is a resolver that knows some hosts.
type hosts map[string][]string

func (h hosts) LookupHost(_ context.Context, name string) ([]string, error) {
	if addresses, ok := h[name]; ok {
		return addresses, nil
	}
	return nil, fmt.Errorf("no such host")
}

func Example() {
	provider, err := capabilities.NewProvider(capabilities.Config{
		Resolver: hosts{"db.example.com": {"192.0.2.7"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	// The configuration of a policy says what it may ask for.
	cfg := admission.PluginConfig{
		Config:   host.Config{Name: "ingress", Module: host.ModuleConfig{File: "ingress.wasm"}},
		Dialects: kubewarden.New(kubewarden.Options{Capabilities: provider}),
		Dialect:  dialect.Config{"kubewarden": []byte(`{"hostCapabilities": ["net/v1/dns_lookup_host"], "hostNames": ["*.example.com"]}`)},
	}
	fmt.Println(cfg.Check())

	// What a policy gets that asks for an address.
	ingress := provider.Caller(cfg.Name, capabilities.Scope{
		HostCapabilities: []string{"net/v1/dns_lookup_host"},
		HostNames:        []string{"*.example.com"},
	})
	join := func(addresses []string) []byte { return []byte(addresses[0]) }
	for _, name := range []string{"db.example.com", "db.example.com", "db.example.org"} {
		address, err := ingress.LookupHost(context.Background(), name, join)
		fmt.Println(string(address), err)
	}
	fmt.Println("hits:", provider.Stats().Hits)
	// Output:
	// []
	// 192.0.2.7 <nil>
	// 192.0.2.7 <nil>
	//  the policy may not look up db.example.org: it is not in the hostNames of its configuration
	// hits: 1
}
