package e2e

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/kubewasm/kubewasm/host/oci"
)

// BenchmarkFetch compares the fetch of a signed module of 2 MB from a registry on loopback
// with the download of the same bytes: cold with verification, and warm, with the cache and
// one request.
func BenchmarkFetch(b *testing.B) {
	s := newServer(b, ggcr(), false)
	key, public := newKey(b)
	content := append(module("bench"), bytes.Repeat([]byte{0, 1, 0}, 2<<20/3)...)
	publisher, ref := newClient(b, oci.Config{Registries: plain(s)}), s.ref(b, "zone:1")
	push(b, publisher, ref, content, oci.PushOptions{})
	if _, err := publisher.Sign(b.Context(), ref, key, oci.SignOptions{NoBundle: true}); err != nil {
		b.Fatal(err)
	}
	cfg := oci.Config{Registries: plain(s), Trust: []oci.Trust{{Repositories: []string{"*"}, AnyOf: []oci.Signer{{Key: public}}}}}
	b.Run("transfer", func(b *testing.B) {
		plain := http.NewServeMux()
		plain.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
		server := newServer(b, plain, false)
		for b.Loop() {
			resp, err := http.Get(server.URL)
			if err != nil {
				b.Fatal(err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			if err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
		}
	})
	b.Run("cold", func(b *testing.B) {
		client := newClient(b, cfg)
		for b.Loop() {
			fetch(b, client, ref)
		}
	})
	b.Run("warm", func(b *testing.B) {
		cached := cfg
		cached.CacheDir = b.TempDir()
		client := newClient(b, cached)
		fetch(b, client, ref)
		for b.Loop() {
			fetch(b, client, ref)
		}
	})
}
