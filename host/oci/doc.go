// Package oci fetches modules from registries and image layouts, verifies their signatures, and
// pushes, copies and signs them.
//
// A [Client] makes the sources that the rest of kubewasm loads and follows:
//
//	client, err := oci.New(oci.Config{
//		CacheDir: "/var/cache/kubewasm/oci",
//		Trust: []oci.Trust{{
//			Repositories: []string{"ghcr.io/acme/*"},
//			AnyOf:        []oci.Signer{{KeyFile: "/etc/kubewasm/acme.pub"}},
//		}},
//	})
//	…
//	rt.AddSources(host.Sources{OCI: client.Source})
//	plugin, err := rt.Load(ctx, host.Config{
//		Name:   "zone",
//		Module: host.ModuleConfig{OCI: "ghcr.io/acme/zone:1.2", Follow: true},
//	}, adapter)
//
// # Artifacts
//
// An artifact is a manifest of one layer, which is the module: of the media type
// application/wasm, with any configuration, or of application/vnd.wasm.content.layer.v1+wasm
// as older tools write it. A plain image with one .wasm file in its only layer is read as
// well, so that one image serves image volumes and this package. An index leads to its
// manifest for the architecture wasm, or to its only one.
//
// # Trust
//
// A tag guarantees nothing about its target. So a source needs a digest in its reference, the
// sha256 of the plugin's configuration, or a rule of [Trust] for its repository, which names the
// required signers. Signatures are those of cosign: under the tag derived from the digest, and
// bundles of version 0.3 that refer to the manifest. They are verified by keys with the standard
// library, and by identities with package oci/sigstore, a separate module.
//
// A signature is about the digest of a manifest. The manifest is compared with this digest,
// its layer with the digest in the manifest, both in memory, and the bytes that were compared
// are those that Fetch returns. So nothing between the check and the compilation can be
// replaced, and nothing is parsed before its digest was compared.
//
// # When the registry is away
//
// A running plugin goes on. Following reports the error, and [Client.Sources] and package
// ocimetrics report the source as stale. With Config.CacheDir a plugin can be loaded, too. The
// cache remembers the target of a tag when a module from it was last loaded, its content, and its
// signatures, which are verified again. A refused version changes none of that: one without the
// required signatures, or one that does not compile. A registry that answers that there is no such
// tag, or that the credentials are wrong, is not away.
package oci
