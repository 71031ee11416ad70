package capabilities

import "context"

// Registry answers about artifacts in registries. Package admission/kubewarden/ociregistry implements it. It
// is safe for use by several goroutines.
//
// The error is the reason that there is no answer. A policy sees a text without addresses and
// without content written by a registry; the log has the rest. Implementations compare every byte
// of an answer with the digest that leads to it.
type Registry interface {
	// Digest returns the digest of the manifest or index that is named by an image.
	Digest(ctx context.Context, image Image) (digest string, err error)
	// Manifest returns that manifest or index, in JSON, at most 4 MiB.
	Manifest(ctx context.Context, image Image) (manifest []byte, err error)
	// Config returns the manifest of an image, its digest and its configuration, both in JSON; for
	// an index, those for Linux on the processor of the server.
	Config(ctx context.Context, image Image) (manifest []byte, digest string, config []byte, err error)
	// Verify returns the digest named by an image if the image has the wanted signatures, and an
	// error otherwise.
	Verify(ctx context.Context, image Image, wanted Signatures) (digest string, err error)
}

// Signatures lists the signatures that an artifact must have, all of them: by keys, by identities,
// by an owner on GitHub or by a certificate.
type Signatures struct {
	// Keys are public keys in PEM.
	Keys []string
	// Identities are identities in certificates of Sigstore.
	Identities []Identity
	// GitHub names the owner whose workflow must have signed; nil allows any.
	GitHub *GitHub
	// Certificate is the certificate of the signing key; nil requires none.
	Certificate *Certificate
	// Annotations must be covered by each signature, together with the digest.
	Annotations map[string]string
}

// Identity identifies a signer by the fields of a Sigstore certificate.
type Identity struct {
	Issuer string
	// Subject is the subject as a whole, or SubjectPrefix the beginning of one that is a
	// URL, with a slash at its end.
	Subject, SubjectPrefix string
}

// GitHub is an owner of repositories on GitHub, and one of the repositories, or any if Repository
// is empty.
type GitHub struct{ Owner, Repository string }

// Certificate is a certificate in PEM, with the chain that verifies it.
type Certificate struct {
	PEM []byte
	// Chain lists the intermediates first and the root last. If it is empty, the certificate itself
	// is trusted.
	Chain [][]byte
	// NeedsLog requires an entry in a transparency log, whose time is the time of the signature.
	// Without an entry, the certificate must be valid now.
	NeedsLog bool
}

// Resolver returns the addresses of a host name, as [net.Resolver] does. It is safe for use by
// several goroutines.
type Resolver interface {
	LookupHost(ctx context.Context, host string) (addresses []string, err error)
}
