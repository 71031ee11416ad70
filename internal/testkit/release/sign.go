package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubewasm/kubewasm/host/oci"
)

// publicKey is the file with the public key of the signatures of a snapshot.
const publicKey = "snapshot.pub"

// readKey reads a private key in PEM. Without a file it makes one, which nobody has when the program has ended.
func readKey(file string) (crypto.Signer, error) {
	if file == "" {
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return oci.ParsePrivateKey(data)
}

// sign signs SHA256SUMS, as cosign sign-blob does, and all that images.txt lists, as cosign sign does. It writes the
// public key, too.
func (m *maker) sign(ctx context.Context, key crypto.Signer) error {
	if _, ok := key.Public().(*ecdsa.PublicKey); !ok {
		return fmt.Errorf("key is a %T, want ECDSA", key.Public())
	}
	data, err := os.ReadFile(filepath.Join(m.out, sums))
	if err != nil {
		return err
	}
	hash := sha256.Sum256(data)
	signature, err := key.Sign(rand.Reader, hash[:], crypto.SHA256)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := errors.Join(
		m.write(sums+".sig", []byte(base64.StdEncoding.EncodeToString(signature)+"\n")),
		m.write(publicKey, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
	); err != nil {
		return err
	}
	client, err := oci.New(oci.Config{})
	if err != nil {
		return err
	}
	for _, line := range m.images {
		ref, err := m.inLayout(line)
		if err != nil {
			return err
		}
		if _, err := client.Sign(ctx, ref, key, oci.SignOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// inLayout returns the reference in the layouts of a line of images.txt.
func (m *maker) inLayout(line string) (oci.Reference, error) {
	name, digest, ok := strings.Cut(strings.TrimPrefix(line, registry), "@")
	repository, _, tagged := strings.Cut(name, ":")
	if !ok || !tagged {
		return oci.Reference{}, fmt.Errorf("%q is no line of images.txt", line)
	}
	return oci.Reference{Layout: filepath.Join(m.out, "oci", filepath.FromSlash(repository)), Digest: digest}, nil
}
