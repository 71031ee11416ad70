package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/kubewasm/kubewasm/host/oci"
)

// benchOCI measures what a signed module of 2 MB from a registry on loopback costs beyond the
// transfer of its bytes.
func benchOCI(b *bench) error {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	defer server.Close()
	host := server.Listener.Addr().String()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	// A custom section that no compressor makes smaller.
	content := bytes.NewBufferString("\x00asm\x01\x00\x00\x00\x00\x84\x80\x80\x01\x03any")
	if _, err := io.CopyN(content, rand.Reader, 2<<20); err != nil {
		return err
	}
	registries := []oci.Registry{{Host: host, PlainHTTP: true}}
	publisher, err := oci.New(oci.Config{Registries: registries})
	if err != nil {
		return err
	}
	ref := oci.Reference{Registry: host, Repository: "acme/zone", Tag: "1"}
	if _, err := publisher.Push(b.ctx, ref, content.Bytes(), oci.PushOptions{}); err != nil {
		return err
	}
	if _, err := publisher.Sign(b.ctx, ref, key, oci.SignOptions{}); err != nil {
		return err
	}
	cfg := oci.Config{Registries: registries, Trust: []oci.Trust{{
		Repositories: []string{"*"}, AnyOf: []oci.Signer{{Key: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}},
	}}}

	var failed error
	// Each start has a client of its own, as a process has.
	start := func(cfg oci.Config) func(n int) {
		return func(n int) {
			for range n {
				client, err := oci.New(cfg)
				if err != nil {
					failed = err
					return
				}
				a, err := client.Fetch(b.ctx, ref)
				if err == nil && len(a.SignedBy) == 0 {
					err = fmt.Errorf("%s was not verified", ref)
				}
				if err != nil {
					failed = err
					return
				}
			}
		}
	}
	request := func(method, path string) func(n int) {
		return func(n int) {
			for range n {
				if err := transfer(method, server.URL+path); err != nil {
					failed = err
					return
				}
			}
		}
	}
	artifact, err := publisher.Fetch(b.ctx, ref)
	if err != nil {
		return err
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(artifact.Module) }))
	defer plain.Close()
	download := func(n int) {
		for range n {
			if err := transfer(http.MethodGet, plain.URL); err != nil {
				failed = err
				return
			}
		}
	}
	cached := cfg
	if cached.CacheDir, err = os.MkdirTemp("", "kubewasm-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(cached.CacheDir)
	start(cached)(1)
	b.compareAll(comparison{
		"pull and verify a module of 2 MB, loopback", target{beyond: 15 * time.Millisecond}, start(cfg), "download of the same bytes", download,
	}, comparison{
		"the same from the cache, tag unchanged", target{beyond: 15 * time.Millisecond}, start(cached), "HEAD request for the tag", request(http.MethodHead, "/v2/acme/zone/manifests/1"),
	})
	return failed
}

// transfer sends a request on a new connection and reads the answer.
func transfer(method, url string) error {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
