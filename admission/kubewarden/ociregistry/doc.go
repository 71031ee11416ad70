// Package ociregistry implements capabilities.Registry, for questions of Kubewarden policies about
// artifacts in registries. It uses a client of package oci of host, with its credentials, CAs and
// mirrors.
//
//	client, err := oci.New(cfg)
//	…
//	provider, err := capabilities.NewProvider(capabilities.Config{Registry: ociregistry.New(client)})
//
// A policy that verifies signatures brings its own keys and identities: the client's trust in
// signatures of modules does not apply there. Identities need a client that verifies them, see
// [oci.Config]'s Keyless.
package ociregistry
