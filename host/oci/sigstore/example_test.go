package sigstore_test

import (
	"fmt"
	"log"

	"github.com/sigstore/sigstore-go/pkg/testing/ca"

	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/sigstore"
)

// A program outside of a test reads the trusted root from a file, by New.
func Example() {
	private, err := ca.NewVirtualSigstore()
	if err != nil {
		log.Fatal(err)
	}
	keyless, err := sigstore.NewFromMaterial(private)
	if err != nil {
		log.Fatal(err)
	}
	_, err = oci.New(oci.Config{Keyless: keyless, Trust: []oci.Trust{{
		Repositories: []string{"ghcr.io/acme/*"},
		AnyOf: []oci.Signer{{Identity: &oci.Identity{
			Issuer:        "https://token.actions.githubusercontent.com",
			SubjectRegexp: `https://github\.com/acme/zone/.*`,
		}}},
	}}})
	fmt.Println(err)
	// Output: <nil>
}
