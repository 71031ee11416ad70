package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// TestAClientForgetsSourcesThatAreGone makes sources as a server does whose plugins change all
// the time.
func TestAClientForgetsSourcesThatAreGone(t *testing.T) {
	client, err := New(Config{Trust: []Trust{{Repositories: []string{"*"}, Unsigned: true}}})
	if err != nil {
		t.Fatal(err)
	}
	used := client.Source("example.com/zone:1")
	for i := range 1000 {
		client.Source(fmt.Sprintf("example.com/zone:%d", i))
		client.Source(fmt.Sprintf("not a reference %d", i))
	}
	left := func() int {
		client.mu.Lock()
		defer client.mu.Unlock()
		return len(client.sources)
	}
	deadline := time.Now().Add(time.Minute)
	for left() > 1 {
		if time.Now().After(deadline) {
			t.Fatalf("%d sources are left, want 1", left())
		}
		runtime.GC() // Cleanups run after it.
	}
	if states := client.Sources(); len(states) != 1 || states[0].Reference != "example.com/zone:1" {
		t.Errorf("states are %+v, want that of the source in use", states)
	}
	if again := client.Source("example.com/zone:1"); again != used {
		t.Error("a source in use is not shared")
	}
	runtime.KeepAlive(used)
}

// TestWhatIsRememberedOfVersionsIsBounded fills the memory of versions, with a cache and without.
func TestWhatIsRememberedOfVersionsIsBounded(t *testing.T) {
	for name, dir := range map[string]string{"without a cache": "", "with a cache": t.TempDir()} {
		client, err := New(Config{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		ref := func(i int) Reference {
			return Reference{Registry: "example.com", Repository: "zone", Tag: fmt.Sprint(i)}
		}
		if err := client.remember(ref(0), accepted{Version: "1.0.0"}); err != nil {
			t.Fatal(err)
		}
		if dir == "" {
			for i := range maxNewest {
				client.newest[ref(i)] = accepted{Version: "1.0.0"}
			}
		} else {
			for i := 1; i < maxNewest; i++ {
				if err := os.Link(client.cache.file(acceptedDir, acceptedKey(ref(0))), client.cache.file(acceptedDir, acceptedKey(ref(i)))); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := client.remember(ref(maxNewest), accepted{Version: "1.0.0"}); err == nil {
			t.Errorf("%s: %d versions are remembered, want an error beyond %d", name, maxNewest+1, maxNewest)
		}
		if last, err := client.last(ref(0)); err != nil || last.Version != "1.0.0" {
			t.Errorf("%s: of the first reference %+v is known, %v, want 1.0.0", name, last, err)
		}
		if err := client.remember(ref(0), accepted{Version: "1.1.0"}); err != nil {
			t.Errorf("%s: a known reference: %v", name, err)
		}
	}
}

// TestKeepOfWhatIsNotThere is about digests that a source does not wait for.
func TestKeepOfWhatIsNotThere(t *testing.T) {
	client, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	source := client.Source("example.com/zone:1").(*source)
	var kept []string
	for i := range maxWaiting + 1 {
		name := fmt.Sprint(i)
		source.handedOver(&fetched{Artifact: &Artifact{}, sha256: "sha256:" + name, kept: func() { kept = append(kept, name) }})
	}
	for _, digest := range []string{"", "0", "1", "1", "4", "9"} {
		host.Keep(source, digest)
	}
	if fmt.Sprint(kept) != "[1 4]" {
		t.Errorf("kept %v, want 1 and 4 once", kept)
	}
}

// TestFetchCompiled holds that a source finds the compiled form that is granted among the
// documents that refer to its artifact.
func TestFetchCompiled(t *testing.T) {
	client, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	reference := "oci-layout:" + t.TempDir() + "/plugins:1.0.0"
	ref, err := ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	module := []byte("\x00asm\x01\x00\x00\x00")
	if _, err := client.Push(t.Context(), ref, module, PushOptions{Attached: []Attachment{
		{Type: compiledMediaType("linux/amd64"), Data: []byte("old")},
		{Type: compiledMediaType("linux/amd64"), Data: []byte("new")},
		{Type: compiledMediaType("linux/arm64"), Data: []byte("arm")},
		{Type: "application/spdx+json", Data: []byte("{}")},
	}}); err != nil {
		t.Fatal(err)
	}
	digest := func(data string) string { return strings.TrimPrefix(sum([]byte(data)), "sha256:") }
	for _, test := range []struct {
		name, platform string
		granted        []string
		want           string
	}{
		{"of several engines", "linux/amd64", []string{digest("arm"), digest("new")}, "new"},
		{"in capitals", "linux/amd64", []string{strings.ToUpper(digest("old"))}, "old"},
		{"for another platform", "linux/arm64", []string{digest("new")}, ""},
		{"that is no compiled form", "linux/amd64", []string{digest("{}")}, ""},
		{"that is not granted", "linux/amd64", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := client.Source(reference).(loading.CompiledSource).FetchCompiled(t.Context(), test.platform, test.granted)
			if string(got) != test.want || errors.Is(err, fs.ErrNotExist) != (test.want == "") {
				t.Errorf("the form is %q, error %v, want %q", got, err, test.want)
			}
		})
	}
	if _, err := client.Source("not a reference").(loading.CompiledSource).FetchCompiled(t.Context(), "linux/amd64", nil); err == nil {
		t.Error("a source without a reference has a compiled form")
	}
}
