package oci_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/oci"
)

// TestSignaturesByCosign verifies what cosign 3 has signed by a key with env=prod: the files
// of testdata/cosign, which "make cosign" rebuilds.
func TestSignaturesByCosign(t *testing.T) {
	data, err := os.ReadFile("testdata/cosign/cosign.pub")
	if err != nil {
		t.Fatal(err)
	}
	key := string(data)
	for tag, section := range map[string]string{"tag": "versiontag", "bundle": "versionbundle"} {
		ref := oci.Reference{Layout: "testdata/cosign/layout.tar", Tag: tag}
		signer := func(key, env string) oci.Trust {
			return oci.Trust{AllOf: []oci.Signer{{Name: "them", Key: key, Annotations: map[string]string{"env": env}}}}
		}
		a, err := trusting(t, signer(key, "prod")).Fetch(t.Context(), ref)
		if err != nil {
			t.Errorf("%s: %v", tag, err)
			continue
		}
		want := &oci.Artifact{
			Module: []byte(string(module) + "\x00" + string(rune(len(section)+1)) + "\x07" + section), Digest: a.Digest,
			Annotations: map[string]string{"org.opencontainers.image.version": "1.2.0"}, SignedBy: []string{"them"},
		}
		if diff := cmp.Diff(want, a); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tag, diff)
		}
		for _, tt := range []struct{ name, key, env, want string }{
			{"another key", publicPEM(t, newKey()), "prod", "it is by another key"},
			{"another annotation", key, "test", `annotation "env" was signed as "prod", want "test"`},
		} {
			if _, err := trusting(t, signer(tt.key, tt.env)).Fetch(t.Context(), ref); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s by %s: %v, want %q", tag, tt.name, err, tt.want)
			}
		}
	}
}
