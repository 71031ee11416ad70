// Package ociregistry answers what Kubewarden policies ask about artifacts in registries: a
// capabilities.Registry on a client of package oci of host, with its credentials, CAs and
// mirrors.
//
//	client, err := oci.New(cfg)
//	…
//	provider, err := capabilities.NewProvider(capabilities.Config{Registry: ociregistry.New(client)})
//
// A policy that verifies signatures brings its own keys and identities: what the client trusts
// for modules does not count there. Identities need a client that verifies them, see
// [oci.Config]'s Keyless.
package ociregistry
