package sigstore

import (
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/host/oci"
)

// Who signed is counted, and not how many identities of a rule match.
func TestSignersAreCountedOnce(t *testing.T) {
	ours := newSigstore(t)
	_, digest := push(t)
	const alice, bob = "https://github.com/acme/alice", "https://github.com/acme/bob"
	bundle := func(subject string) []byte {
		t.Helper()
		e, err := ours.AttestAtTime(subject, issuer, statement(predicateSign, digest), time.Now().Add(5*time.Minute), true)
		if err != nil {
			t.Fatal(err)
		}
		return bundleOf(t, ours, e)
	}
	byAlice, byAliceAgain, byBob := bundle(alice), bundle(alice), bundle(bob)
	anybody := oci.Identity{Issuer: issuer, SubjectRegexp: "https://github.com/acme/.*"}
	anyIssuer := oci.Identity{IssuerRegexp: ".*", SubjectRegexp: "https://github.com/acme/[a-z]+"}
	onlyAlice := oci.Identity{Issuer: issuer, Subject: alice}
	for _, tt := range []struct {
		name    string
		bundles [][]byte
		any     []oci.Identity
		want    bool
	}{
		{"one signature that two identities match", [][]byte{byAlice}, []oci.Identity{anybody, onlyAlice}, false},
		{"two signatures by one identity", [][]byte{byAlice, byAliceAgain}, []oci.Identity{anybody, onlyAlice}, false},
		{"two expressions for one signer", [][]byte{byBob}, []oci.Identity{anybody, anyIssuer}, false},
		{"two signers, of whom one identity matches both", [][]byte{byAlice, byBob}, []oci.Identity{anybody, onlyAlice}, true},
		{"two signers in the other order", [][]byte{byBob, byAlice}, []oci.Identity{onlyAlice, anybody}, true},
		{"two signers that one identity matches, and the other none", [][]byte{byAlice, byBob}, []oci.Identity{anybody, {Issuer: issuer, Subject: "nobody"}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref, _ := push(t, tt.bundles...)
			keyless, err := NewFromMaterial(private{ours})
			if err != nil {
				t.Fatal(err)
			}
			rule := oci.Trust{Repositories: []string{"*"}, Minimum: 2}
			for i := range tt.any {
				rule.AnyOf = append(rule.AnyOf, oci.Signer{Identity: &tt.any[i]})
			}
			client, err := oci.New(oci.Config{Keyless: keyless, Trust: []oci.Trust{rule}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Fetch(t.Context(), ref); (err == nil) != tt.want {
				t.Errorf("trusted: %v, want %v: %v", err == nil, tt.want, err)
			}
		})
	}
}

// What was signed is taken from what was verified: a second parser of the same bundle may read
// something else.
func TestStatementsAreNoSignaturesHoweverTheyAreSpelt(t *testing.T) {
	ours := newSigstore(t)
	_, digest := push(t)
	e, err := ours.AttestAtTime(subject, issuer, statement("https://example.com/this-is-broken/v1", digest), time.Now().Add(5*time.Minute), true)
	if err != nil {
		t.Fatal(err)
	}
	bundle := string(bundleOf(t, ours, e))
	for _, spelling := range []string{"dsseEnvelope", "dsse_envelope", `dsse\u0045nvelope`} {
		ref, _ := push(t, []byte(strings.Replace(bundle, `"dsseEnvelope"`, `"`+spelling+`"`, 1)))
		if err := fetch(t, private{ours}, ref, oci.Identity{Issuer: issuer, Subject: subject}); err == nil || !strings.Contains(err.Error(), "the signed content is a statement") {
			t.Errorf("%s: %v, want a refusal of the statement", spelling, err)
		}
	}
}
