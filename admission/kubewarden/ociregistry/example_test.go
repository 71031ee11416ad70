package ociregistry_test

import (
	"context"
	"fmt"
	"log"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/ociregistry"
	"github.com/kubewasm/kubewasm/host/oci"
)

func Example() {
	client, err := oci.New(oci.Config{Registries: []oci.Registry{
		{Host: "ghcr.io", Mirrors: []string{"mirror.example.com/ghcr"}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	provider, err := capabilities.NewProvider(capabilities.Config{Registry: ociregistry.New(client)})
	if err != nil {
		log.Fatal(err)
	}
	// The provider is kubewarden.Options.Capabilities.
	images := provider.Caller("images", capabilities.Scope{
		HostCapabilities: []string{"oci/v2/verify", "oci/v1/manifest_digest"},
		Repositories:     []string{"ghcr.io/acme/*"},
	})
	image, err := capabilities.ParseImage("ghcr.io/others/zone")
	if err != nil {
		log.Fatal(err)
	}
	_, err = images.Digest(context.Background(), image)
	fmt.Println(err)
	// Output:
	// the policy may not ask about ghcr.io/others/zone: it is not in the repositories of its configuration
}
