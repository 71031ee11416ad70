package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/kubewasm/kubewasm/host/oci"
)

// client returns a client for a registry of this process that speaks HTTP, and the registry's name.
func client(server *httptest.Server) (*oci.Client, string, error) {
	registry := strings.TrimPrefix(server.URL, "http://")
	c, err := oci.New(oci.Config{Registries: []oci.Registry{{Host: registry, PlainHTTP: true}}})
	return c, registry, err
}

// tokens resolves tags of many repositories of a registry that has a long token for each, as
// policies do that look at images which users name.
func tokens(repositories, length int) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		token := strings.Repeat("t", length)
		var server *httptest.Server
		server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/token":
				fmt.Fprintf(w, `{"token":%q}`, token)
			case r.Header.Get("Authorization") == "":
				name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/")
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x",scope="repository:%s:pull"`, server.URL, name))
				w.WriteHeader(http.StatusUnauthorized)
			default:
				w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
				w.Header().Set("Content-Length", "7")
			}
		}))
		defer server.Close()
		server.Config.MaxHeaderBytes = 1 << 20
		c, registry, err := client(server)
		if err != nil {
			return err
		}
		var failed error
		failures := 0
		for i := range repositories {
			ref, err := oci.ParseReference(fmt.Sprintf("%s/r%d/x:1", registry, i))
			if err != nil {
				return err
			}
			if _, err := c.Resolve(ctx, ref); err != nil {
				failures++
				failed = err
			}
		}
		if failed != nil {
			return fmt.Errorf("%d of %d: %w", failures, repositories, failed)
		}
		return nil
	}
}

// signatures asks at once about the signatures of one manifest, which has 64 with long payloads.
func signatures(questions, payload int) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		registry, last, err := newSignatures(payload)
		if err != nil {
			return err
		}
		// All are asked for the last payload before any of them is done.
		var atLast sync.WaitGroup
		atLast.Add(questions)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, last) {
				atLast.Done()
				atLast.Wait()
			}
			registry.ServeHTTP(w, r)
		}))
		defer server.Close()
		c, name, err := client(server)
		if err != nil {
			return err
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		if err != nil {
			return err
		}
		trust := oci.Trust{AllOf: []oci.Signer{{Name: "us", Key: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}}}
		ref, err := oci.ParseReference(name + "/acme/zone:1")
		if err != nil {
			return err
		}
		errs := make([]error, questions)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, _, errs[i] = c.Verify(ctx, ref, trust) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			_, reason, _ := strings.Cut(firstLine(err.Error()), "is not trusted: ")
			return errors.New(reason)
		}
		return nil
	}
}

// newSignatures returns a registry with a manifest and 64 signatures by nobody, and the digest of
// the last payload.
func newSignatures(payload int) (registry http.Handler, last string, err error) {
	const manifestType, number = "application/vnd.oci.image.manifest.v1+json", 64
	sum := func(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }
	manifest := func(layers ...any) []byte {
		empty := map[string]any{"mediaType": "application/vnd.oci.empty.v1+json", "digest": sum([]byte("{}")), "size": 2}
		text, marshalErr := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": empty, "layers": layers})
		err = errors.Join(err, marshalErr)
		return text
	}
	// The payloads are one text and a number behind it.
	zeros := strings.Repeat("0", payload-8)
	numbers := map[string]string{}
	var layers []any
	for i := range number {
		hash := sha256.New()
		end := fmt.Sprintf("%08d", i)
		_, _ = io.WriteString(hash, zeros+end)
		last = fmt.Sprintf("sha256:%x", hash.Sum(nil))
		numbers[last] = end
		layers = append(layers, map[string]any{
			"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": last, "size": payload,
			"annotations": map[string]string{"dev.cosignproject.cosign/signature": "AAAA"},
		})
	}
	root, signatures := manifest(map[string]any{"mediaType": "application/wasm", "digest": sum(nil), "size": 0}), manifest(layers...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, name, _ := strings.Cut(r.URL.Path, "/manifests/")
		text := signatures
		switch {
		case name == "1" || name == sum(root):
			text = root
		case strings.HasSuffix(name, ".sig") || name == sum(signatures):
		default:
			_, digest, _ := strings.Cut(r.URL.Path, "/blobs/")
			if end, ok := numbers[digest]; ok {
				w.Header().Set("Content-Length", fmt.Sprint(payload))
				_, _ = io.WriteString(w, zeros)
				_, _ = io.WriteString(w, end)
				return
			}
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", manifestType)
		w.Header().Set("Docker-Content-Digest", sum(text))
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		_, _ = w.Write(text)
	}), last, err
}
