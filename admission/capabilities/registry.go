package capabilities

import "context"

// Registry answers about artifacts in registries. Package admission/ociregistry has one. It is
// safe for use by several goroutines.
//
// An error says why there is no answer. A policy sees words without addresses and without what a
// registry wrote; the log has the rest. Every byte of an answer was compared with the digest that
// leads to it.
type Registry interface {
	// Digest returns the digest of the manifest or index that an image names.
	Digest(ctx context.Context, image Image) (digest string, err error)
	// Manifest returns that manifest or index, in JSON, at most 4 MiB.
	Manifest(ctx context.Context, image Image) (manifest []byte, err error)
	// Config returns the manifest of an image, its digest and its configuration, both in
	// JSON; of an index, those for Linux on the processor that the server runs on.
	Config(ctx context.Context, image Image) (manifest []byte, digest string, config []byte, err error)
	// Verify returns the digest that an image names if it has the signatures that are
	// wanted, and an error otherwise.
	Verify(ctx context.Context, image Image, wanted Signatures) (digest string, err error)
}

// Signatures are those that an artifact must have, each of them: by keys, by identities, by an
// owner on GitHub or by a certificate.
type Signatures struct {
	// Keys are public keys in PEM.
	Keys []string
	// Identities are those in certificates of Sigstore.
	Identities []Identity
	// GitHub is where a workflow has signed; nil is anywhere.
	GitHub *GitHub
	// Certificate is that of the key that has signed; nil is none.
	Certificate *Certificate
	// Annotations must have been signed with the digest, by each.
	Annotations map[string]string
}

// Identity is what a certificate of Sigstore says of a signer.
type Identity struct {
	Issuer string
	// Subject is the subject as a whole, or SubjectPrefix the beginning of one that is a
	// URL, with a slash at its end.
	Subject, SubjectPrefix string
}

// GitHub is an owner of repositories on GitHub, and one of them or, if it is empty, any.
type GitHub struct{ Owner, Repository string }

// Certificate is a certificate in PEM, with the chain that it is verified by.
type Certificate struct {
	PEM []byte
	// Chain has the intermediates first and the root last. Without a chain the certificate
	// is trusted.
	Chain [][]byte
	// NeedsLog wants an entry of a transparency log, whose time is that of the signature.
	// Without one, the certificate must be valid now.
	NeedsLog bool
}

// Resolver returns the addresses of a host name, as [net.Resolver] does. It is safe for use by
// several goroutines.
type Resolver interface {
	LookupHost(ctx context.Context, host string) (addresses []string, err error)
}
