package oci_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/host/oci"
)

// A module is pushed to an image layout, signed, and fetched by a client that trusts the key.
// A registry works the same way: only the reference is another.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	reference := "oci-layout:" + filepath.Join(dir, "plugins") + ":1.2.0"

	publisher, err := oci.New(oci.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ref, err := oci.ParseReference(reference)
	if err != nil {
		log.Fatal(err)
	}
	module := []byte("\x00asm\x01\x00\x00\x00")
	if _, err := publisher.Push(ctx, ref, module, oci.PushOptions{}); err != nil {
		log.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := publisher.Sign(ctx, ref, key, oci.SignOptions{}); err != nil {
		log.Fatal(err)
	}

	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		log.Fatal(err)
	}
	client, err := oci.New(oci.Config{Trust: []oci.Trust{{
		Repositories: []string{"oci-layout:" + dir + "/*"},
		AnyOf:        []oci.Signer{{Name: "acme", Key: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	fetched, err := client.Source(reference).Fetch(ctx)
	fmt.Println(len(fetched), err)
	// Output: 8 <nil>
}
