// Package sigstore verifies signatures by an identity, without a key: a certificate of
// Sigstore's Fulcio that names the identity, and an entry of its log Rekor that proves when it
// was used. All of it is verified offline, by a trusted root that the operator has:
//
//	keyless, err := sigstore.New("trusted_root.json")
//	…
//	client, err := oci.New(oci.Config{
//		Keyless: keyless,
//		Trust: []oci.Trust{{
//			Repositories: []string{"ghcr.io/acme/*"},
//			AnyOf: []oci.Signer{{Identity: &oci.Identity{
//				Issuer:        "https://token.actions.githubusercontent.com",
//				SubjectRegexp: "https://github\\.com/acme/zone/\\.github/workflows/release\\.yml@refs/tags/v.*",
//			}}},
//		}},
//	})
//
// The package is a separate module, since sigstore-go brings dozens of others.
package sigstore
