package policies_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host"
)

// images is a registry that answers with what it was asked. Package ociregistry is tested with
// real ones.
type images struct{ slow chan struct{} }

func (r images) Digest(ctx context.Context, image capabilities.Image) (string, error) {
	if image.Tag == "slow" {
		select {
		case <-r.slow:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return "sha256 of " + image.String(), nil
}

func (images) Manifest(_ context.Context, image capabilities.Image) ([]byte, error) {
	if image.Tag == "large" {
		return []byte(`"` + strings.Repeat("x", 2<<20) + `"`), nil
	}
	return fmt.Appendf(nil, `{"of":%q}`, image), nil
}

func (images) Config(_ context.Context, image capabilities.Image) ([]byte, string, []byte, error) {
	return fmt.Appendf(nil, `{"of":%q}`, image), "sha256:d", []byte(`{"os":"linux"}`), nil
}

func (images) Verify(_ context.Context, image capabilities.Image, wanted capabilities.Signatures) (string, error) {
	if image.Tag == "unsigned" {
		return "", errors.New("it has no signature")
	}
	text, err := json.Marshal(wanted)
	return string(text), err
}

// asked is the creation of an object that has a policy ask its host.
func asked(operation, payload string) *admissionv1.AdmissionRequest {
	namespace, name, _ := strings.Cut(operation, "/")
	return requestOf(fmt.Sprintf(`{"ask":"%s %s %s"}`, namespace, name, hex.EncodeToString([]byte(payload))))
}

// asker loads the policy that asks, with everything granted below example.com.
func askingPolicy(t *testing.T, cfg capabilities.Config, limits host.Limits) (*admission.Engine, *capabilities.Provider) {
	t.Helper()
	provider, err := capabilities.NewProvider(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plugin := config(t, "asks", buildC(t, "testdata/kubewarden/asks.c"))
	plugin.Capabilities, plugin.Limits = provider, limits
	plugin.Scope = capabilities.Scope{
		HostCapabilities: []string{"oci/*", "net/*"}, Repositories: []string{"r.example.com/*"}, HostNames: []string{"*.example.com"},
	}
	return admission.NewEngine(load(t, plugin)), provider
}

func TestHostCapabilities(t *testing.T) {
	e, provider := askingPolicy(t, capabilities.Config{Registry: images{}, Resolver: resolver(t)}, host.Limits{})
	const pem = "-----BEGIN PUBLIC KEY-----"
	for _, test := range []struct{ name, operation, payload, want string }{
		{"a digest", "oci/v1/manifest_digest", `"r.example.com/a"`, `{"digest":"sha256 of r.example.com/a:latest"}`},
		{"a manifest", "oci/v1/oci_manifest", `"r.example.com/a:1"`, `{"of":"r.example.com/a:1"}`},
		{"a configuration", "oci/v1/oci_manifest_config", `"r.example.com/a:1"`, `{"manifest":{"of":"r.example.com/a:1"},"digest":"sha256:d","config":{"os":"linux"}}`},
		{"keys, first version", "oci/v1/verify", `{"SigstorePubKeyVerify":{"image":"r.example.com/a","pub_keys":["` + pem + `"],"annotations":null}}`,
			`{"digest":"{\"Keys\":[\"` + pem + `\"],\"Identities\":null,\"GitHub\":null,\"Certificate\":null,\"Annotations\":null}","is_trusted":true}`},
		{"identities, first version", "oci/v1/verify", `{"SigstoreKeylessVerify":{"image":"r.example.com/a","keyless":[{"issuer":"i","subject":"s"}],"annotations":{"a":"b"}}}`,
			`{"digest":"{\"Keys\":null,\"Identities\":[{\"Issuer\":\"i\",\"Subject\":\"s\",\"SubjectPrefix\":\"\"}],\"GitHub\":null,\"Certificate\":null,\"Annotations\":{\"a\":\"b\"}}","is_trusted":true}`},
		{"keys", "oci/v2/verify", `{"type":"SigstorePubKeyVerify","image":"r.example.com/a","pub_keys":["` + pem + `"],"annotations":{}}`,
			`{"digest":"{\"Keys\":[\"` + pem + `\"],\"Identities\":null,\"GitHub\":null,\"Certificate\":null,\"Annotations\":{}}","is_trusted":true}`},
		{"a prefix", "oci/v2/verify", `{"type":"SigstoreKeylessPrefixVerify","image":"r.example.com/a","keyless_prefix":[{"issuer":"i","url_prefix":"https://github.com/acme"}],"annotations":null}`,
			`{"digest":"{\"Keys\":null,\"Identities\":[{\"Issuer\":\"i\",\"Subject\":\"\",\"SubjectPrefix\":\"https://github.com/acme/\"}],\"GitHub\":null,\"Certificate\":null,\"Annotations\":null}","is_trusted":true}`},
		{"a workflow", "oci/v2/verify", `{"type":"SigstoreGithubActionsVerify","image":"r.example.com/a","owner":"acme","repo":"zone","annotations":null}`,
			`{"digest":"{\"Keys\":null,\"Identities\":null,\"GitHub\":{\"Owner\":\"acme\",\"Repository\":\"zone\"},\"Certificate\":null,\"Annotations\":null}","is_trusted":true}`},
		{"a certificate", "oci/v2/verify", `{"type":"SigstoreCertificateVerify","image":"r.example.com/a","certificate":[65,66],"certificate_chain":[[67],[68]],"require_rekor_bundle":true,"annotations":null}`,
			`{"digest":"{\"Keys\":null,\"Identities\":null,\"GitHub\":null,\"Certificate\":{\"PEM\":\"QUI=\",\"Chain\":[\"Qw==\",\"RA==\"],\"NeedsLog\":true},\"Annotations\":null}","is_trusted":true}`},
		{"no signature", "oci/v2/verify", `{"type":"SigstorePubKeyVerify","image":"r.example.com/a:unsigned","pub_keys":["k"],"annotations":null}`, "verify: it has no signature"},
		{"addresses", "net/v1/dns_lookup_host", `"a.example.com"`, `{"ips":["192.0.2.1","192.0.2.2","2001:db8::1"]}`},
		{"a host that there is not", "net/v1/dns_lookup_host", `"none.example.com"`, "dns_lookup_host: look up none.example.com: no such host"},
		{"a repository that is not granted", "oci/v1/manifest_digest", `"busybox"`, "manifest_digest: the policy may not ask about docker.io/library/busybox: it is not in the repositories of its configuration"},
		{"signatures of one that is not granted", "oci/v2/verify", `{"type":"SigstorePubKeyVerify","image":"busybox","pub_keys":["k"],"annotations":null}`, "verify: the policy may not ask about docker.io/library/busybox: it is not in the repositories of its configuration"},
		{"a host that is not granted", "net/v1/dns_lookup_host", `"kubernetes.default.svc"`, "dns_lookup_host: the policy may not look up kubernetes.default.svc: it is not in the hostNames of its configuration"},
		{"an operation that is not granted", "kubernetes/can_i", `{}`, "the policy may not call kubernetes/can_i: it is not in the hostCapabilities of its configuration"},
		{"an operation that there is not", "oci/v3/verify", `{}`, `unknown operation "v3/verify" of namespace "oci"`},
		{"a layout", "oci/v1/manifest_digest", `"oci-layout:/etc:x"`, `manifest_digest: image "oci-layout:/etc:x" is no [REGISTRY/]REPOSITORY[:TAG][@DIGEST]: port is "", want 1 to 65535`},
		{"no image", "oci/v1/manifest_digest", `{}`, "manifest_digest: json: cannot unmarshal object into Go value of type string"},
		{"no keys", "oci/v2/verify", `{"type":"SigstorePubKeyVerify","image":"r.example.com/a","pub_keys":[]}`, "verify: pub_keys is empty"},
		{"no identities", "oci/v2/verify", `{"type":"SigstoreKeylessVerify","image":"r.example.com/a"}`, "verify: keyless is empty"},
		{"an identity without a subject", "oci/v2/verify", `{"type":"SigstoreKeylessVerify","image":"r.example.com/a","keyless":[{"issuer":"i"}]}`, "verify: keyless[0] has no issuer or no subject"},
		{"a prefix that is no URL", "oci/v2/verify", `{"type":"SigstoreKeylessPrefixVerify","image":"r.example.com/a","keyless_prefix":[{"issuer":"i","url_prefix":"acme"}]}`, `verify: keyless_prefix[0] has issuer "i" and url_prefix "acme", want an issuer and a URL`},
		{"an owner that is a path", "oci/v2/verify", `{"type":"SigstoreGithubActionsVerify","image":"r.example.com/a","owner":"acme/zone"}`, `verify: owner is "acme/zone" and repo "", want names`},
		{"no owner", "oci/v2/verify", `{"type":"SigstoreGithubActionsVerify","image":"r.example.com/a"}`, "verify: owner is empty"},
		{"an empty chain", "oci/v2/verify", `{"type":"SigstoreCertificateVerify","image":"r.example.com/a","certificate":[65],"certificate_chain":[]}`, "verify: certificate_chain is empty"},
		{"a long chain", "oci/v2/verify", `{"type":"SigstoreCertificateVerify","image":"r.example.com/a","certificate":[65],"certificate_chain":[[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1]]}`, "verify: certificate_chain has 17 certificates, more than 16"},
		{"many keys", "oci/v2/verify", `{"type":"SigstorePubKeyVerify","image":"r.example.com/a","pub_keys":[` + strings.Repeat(`"k",`, 32) + `"k"]}`, "verify: it wants 33 signers or annotations, more than 32"},
		{"another type", "oci/v2/verify", `{"type":"SigstoreNothingVerify","image":"r.example.com/a"}`, `verify: its type is "SigstoreNothingVerify", want one of SigstorePubKeyVerify, SigstoreKeylessVerify, SigstoreKeylessPrefixVerify, SigstoreGithubActionsVerify, SigstoreCertificateVerify`},
		{"a type of the second version in the first", "oci/v1/verify", `{"SigstoreGithubActionsVerify":{"image":"r.example.com/a","owner":"acme"}}`, `verify: it asks for "SigstoreGithubActionsVerify", want SigstorePubKeyVerify or SigstoreKeylessVerify`},
		{"two questions in one", "oci/v1/verify", `{"SigstorePubKeyVerify":{"image":"r.example.com/a","pub_keys":["k"]},"SigstoreKeylessVerify":{"image":"r.example.com/a"}}`, "verify: the question has not one of SigstorePubKeyVerify and SigstoreKeylessVerify"},
		{"null", "oci/v1/verify", `null`, "verify: the question has not one of SigstorePubKeyVerify and SigstoreKeylessVerify"},
		{"a long name of an image", "oci/v1/manifest_digest", `"r.example.com/` + strings.Repeat("a", 1100) + `"`, "manifest_digest: the image has 1114 bytes, more than 1024"},
		{"a long question", "oci/v1/manifest_digest", `"` + strings.Repeat("a", 65<<10) + `"`, "manifest_digest: the question has 66562 bytes, more than 65536"},
		{"a long question about signatures", "oci/v2/verify", `"` + strings.Repeat("a", 1<<20) + `"`, "verify: the question has 1048578 bytes, more than 1048576"},
	} {
		t.Run(test.name, func(t *testing.T) {
			compare(t, denied(403, "Forbidden", test.want), e.Validate(t.Context(), asked(test.operation, test.payload)))
		})
	}
	refused := map[string]uint64{}
	for _, c := range provider.Stats().Calls {
		if c.Result == capabilities.Refused {
			refused[c.Operation] = c.Count
		}
	}
	if want := "map[kubernetes/can_i:1 net/v1/dns_lookup_host:1 oci/v1/manifest_digest:1 oci/v2/verify:1]"; fmt.Sprint(refused) != want {
		t.Errorf("refused are %v, want %s", refused, want)
	}
}

// resolver asks a name server on loopback.
func resolver(t *testing.T) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		query := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(query)
			if err != nil {
				return
			}
			if answer := nameServer(query[:n]); answer != nil {
				_, _ = server.WriteTo(answer, from) // The client is gone.
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// nameServer answers a query of one question by RFC 1035: it knows a.example.com.
func nameServer(query []byte) []byte {
	const header, name = 12, "\x01a\x07example\x03com\x00"
	end := bytes.IndexByte(query[header:], 0) + header + 1
	if len(query) < end+4 {
		return nil
	}
	var addresses [][]byte
	code := byte(3) // No such name.
	if string(query[header:end]) == name {
		code = 0
		switch query[end+1] {
		case 1:
			addresses = [][]byte{{192, 0, 2, 1}, {192, 0, 2, 2}}
		case 28:
			addresses = [][]byte{{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 15: 1}}
		}
	}
	answer := append([]byte{query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, byte(len(addresses)), 0, 0, 0, 0}, query[header:end+4]...)
	for _, address := range addresses {
		answer = append(answer, 0xc0, header, 0, query[end+1], 0, 1, 0, 0, 0, 60, 0, byte(len(address)))
		answer = append(answer, address...)
	}
	return answer
}

// A registry that does not answer takes the time of the call that asks it, and an instance.
func TestSlowRegistry(t *testing.T) {
	slow := make(chan struct{})
	e, _ := askingPolicy(t, capabilities.Config{Registry: images{slow}, Bounds: capabilities.Bounds{Timeout: metav1.Duration{Duration: time.Minute}}}, host.Limits{Instances: 2, Timeout: 300 * time.Millisecond})
	const want = "manifest_digest: no answer before the call's deadline: context deadline exceeded"
	done := make(chan *admissionv1.AdmissionResponse, 1)
	go func() {
		done <- e.Validate(t.Context(), asked("oci/v1/manifest_digest", `"r.example.com/a:slow"`))
	}()
	compare(t, denied(403, "Forbidden", `{"digest":"sha256 of r.example.com/a:1"}`), e.Validate(t.Context(), asked("oci/v1/manifest_digest", `"r.example.com/a:1"`)))
	compare(t, denied(403, "Forbidden", want), <-done)
	// The request's own time is shorter.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	got := e.Validate(ctx, asked("oci/v1/manifest_digest", `"r.example.com/a:slow"`))
	if got.Allowed {
		t.Error("allowed")
	}
	close(slow) // What was asked in vain goes on, and has an answer for the next.
	wide, _ := askingPolicy(t, capabilities.Config{Registry: images{slow}}, host.Limits{})
	compare(t, denied(403, "Forbidden", `{"digest":"sha256 of r.example.com/a:slow"}`), wide.Validate(t.Context(), asked("oci/v1/manifest_digest", `"r.example.com/a:slow"`)))
}

// counting is a resolver that counts.
type counting struct{ n atomic.Int64 }

func (c *counting) LookupHost(_ context.Context, _ string) ([]string, error) {
	c.n.Add(1)
	return []string{"192.0.2.1"}, nil
}

// Guests that lie about lengths, ask for more than they may have, or without end, fail, and the
// host goes on.
func TestHostileQuestions(t *testing.T) {
	resolver := &counting{}
	e, _ := askingPolicy(t, capabilities.Config{Registry: images{}, Resolver: resolver}, host.Limits{Instances: 1, Fuel: 200_000_000, Timeout: time.Minute, ResultBytes: 1 << 20})
	lie := func(n int) *admissionv1.AdmissionRequest { return requestOf(fmt.Sprintf(`{"lie":"%d"}`, n)) }
	for _, test := range []struct {
		name    string
		request *admissionv1.AdmissionRequest
		want    string
	}{
		{"a payload of 4 GiB", lie(0), "4294967295 bytes are more than the limit of 1048576"},
		{"a payload beyond the memory", lie(1), "out of bounds of the guest's memory"},
		{"an operation beyond the memory", lie(2), "out of bounds of the guest's memory"},
		{"a namespace of a megabyte", lie(3), "a name of the call has 1048576 bytes, more than 1024"},
		{"a binding of 2 GiB", lie(4), "a name of the call has 2147483648 bytes, more than 1024"},
		{"an answer beyond the memory", lie(5), "out of bounds of the guest's memory"},
		{"an error beyond the memory", lie(6), "out of bounds of the guest's memory"},
		{"an answer that was not asked for", lie(7), ""},
		{"an answer that is too long", asked("oci/v1/oci_manifest", `"r.example.com/a:large"`), "the answer is longer than limits.resultBytes"},
		{"questions without end", requestOf(`{"loop":"net v1/dns_lookup_host 'aa.example.com'"}`), "out of fuel"},
		{"questions that are refused without end", requestOf(`{"loop":"net v1/dns_lookup_host 'aa.example.org'"}`), "out of fuel"},
		{"operations without end that there are not", requestOf(`{"loop":"net v9 'aa'"}`), "out of fuel"},
	} {
		t.Run(test.name, func(t *testing.T) {
			resolver.n.Store(0)
			got := e.Validate(t.Context(), test.request)
			if got.Allowed || !strings.Contains(got.Result.Message, test.want) || len(got.Result.Message) > 1000 {
				t.Errorf("answer is %+v, want %s", got.Result, test.want)
			}
			if n := resolver.n.Load(); n > 64 {
				t.Errorf("%d questions left the host for one request", n)
			}
			compare(t, denied(403, "Forbidden", `{"ips":["192.0.2.1"]}`), e.Validate(t.Context(), asked("net/v1/dns_lookup_host", `"z.example.com"`)))
		})
	}
}
