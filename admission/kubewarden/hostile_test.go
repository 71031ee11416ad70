package kubewarden

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
)

// unlimited is a budget for any question.
func unlimited(t *testing.T) *budget {
	return &budget{
		ctx: t.Context(), spend: func(int64) {}, log: func(int) bool { return true }, limit: 8 << 20,
		wait: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }, asked: new(int),
	}
}

// granting returns capabilities of a policy that may call everything, and see Secrets.
func granting(of cluster) *hostCapabilities {
	return &hostCapabilities{Cluster: of, Caller: (*capabilities.Provider)(nil).Caller("p", capabilities.Scope{
		HostCapabilities: []string{"*"}, Repositories: []string{"*"}, HostNames: []string{"*"}, ContextAwareResources: []capabilities.Kind{{APIVersion: "v1", Kind: "Secret"}},
	})}
}

// errFuel stands for the end of a call that has no fuel left.
var errFuel = errors.New("out of fuel")

// within answers a question with a budget of fuel.
func (c *hostCapabilities) within(ctx context.Context, fuel int64, namespace, operation string, question any) (answer []byte, err error) {
	payload, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r == any(errFuel) {
			err = errFuel
		} else if r != nil {
			panic(r)
		}
	}()
	b := &budget{ctx: ctx, limit: 1 << 20, log: func(int) bool { return true }, spend: func(n int64) {
		if fuel -= n; fuel < 0 || n < 0 {
			panic(errFuel)
		}
	}, wait: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }, asked: new(int)}
	return c.call(b, "kubewarden", namespace, operation, payload)
}

// certify makes a certificate of a key whose owner is not known.
func certify(t *testing.T, issuer *signed, key any, change func(*x509.Certificate)) *signed {
	t.Helper()
	template := *issuer.cert
	template.SerialNumber, template.PublicKey, template.IsCA = big.NewInt(7), nil, true
	if change != nil {
		change(&template)
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, issuer.cert, key, issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signed{cert: cert}
}

func rsaKey(bits uint) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 65537}
}

// What crypto/x509 takes long for is refused before it begins, and what it does is
// paid.
func TestHostileCertificates(t *testing.T) {
	root := sign(t, "root", nil, nil)
	leaf := sign(t, "leaf", root, func(c *x509.Certificate) { c.IsCA = false })
	// The identifiers of Ed25519 and of X25519, which signs nothing, differ in a byte.
	agrees := certify(t, root, ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)), nil)
	agrees.cert.Raw = bytes.Replace(agrees.cert.Raw, []byte{6, 3, 0x2b, 0x65, 0x70}, []byte{6, 3, 0x2b, 0x65, 0x6e}, 1)
	names := func(c *x509.Certificate) {
		for i := range 600 {
			c.EmailAddresses = append(c.EmailAddresses, fmt.Sprintf("a@n%d.example.com", i))
		}
	}
	constraints := func(c *x509.Certificate) {
		for i := range 600 {
			c.ExcludedEmailAddresses = append(c.ExcludedEmailAddresses, fmt.Sprintf("c%d.example.org", i))
		}
	}
	policies := func(c *x509.Certificate) {
		for i := range 101 {
			oid, err := x509.OIDFromInts([]uint64{1, 2, 3, uint64(i)})
			if err != nil {
				t.Fatal(err)
			}
			c.Policies = append(c.Policies, oid)
		}
	}
	constrained := sign(t, "constrained", root, constraints)
	tests := []struct {
		name  string
		cert  any
		chain []any
		fuel  int64
		want  string
	}{
		{"an RSA key of two million bits", leaf.sent("Der"), []any{certify(t, root, rsaKey(2_000_000), nil).sent("Der")}, 1 << 40, "cert_chain[0]: it has 250"},
		{"an RSA key of 16384 bits", leaf.sent("Der"), []any{certify(t, root, rsaKey(16384), nil).sent("Pem"), root.sent("Pem")}, 1 << 40, "cert_chain[0]: its key has 16384 bits, more than 8192"},
		{"such a key of the certificate itself", certify(t, root, rsaKey(8193), nil).sent("Der"), nil, 1 << 40, "certificate: its key has 8193 bits, more than 8192"},
		{"an RSA key of 8192 bits", certify(t, root, rsaKey(8192), nil).sent("Der"), []any{root.sent("Der")}, 1 << 40, ""},
		{"a key that signs nothing", agrees.sent("Der"), nil, 1 << 40, "its key is none of RSA, ECDSA and Ed25519"},
		{"a long certificate", leaf.sent("Der"), []any{certify(t, root, rsaKey(2048), func(c *x509.Certificate) { c.RawSubject, c.Subject.CommonName = nil, strings.Repeat("x", 40<<10) }).sent("Der")}, 1 << 40, "bytes, more than 32768"},
		{"very many policies", certify(t, root, rsaKey(2048), policies).sent("Der"), nil, 1 << 40, "it has 101 policies, more than 100"},
		{"many names and as many constraints", sign(t, "named", constrained, names).sent("Der"), []any{constrained.sent("Der"), root.sent("Der")}, 1 << 40, ""},
		{"bytes without end", map[string]any{"encoding": "Pem", "data": make([]int, 2<<20)}, nil, 1 << 40, "more than 2097152"},
		{"a chain that cannot be paid", leaf.sent("Der"), []any{root.sent("Der"), root.sent("Der"), root.sent("Der")}, 2_000_000, "out of fuel"},
		{"a question that cannot be paid", leaf.sent("Der"), nil, 1000, "out of fuel"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			question := map[string]any{"cert": test.cert}
			if test.chain != nil {
				question["cert_chain"] = test.chain
			}
			answer, err := granting(nil).within(t.Context(), test.fuel, "crypto", "v1/is_certificate_trusted", question)
			got := string(answer)
			if err != nil {
				got = err.Error()
			}
			if trusted := strings.Contains(got, `"trusted":true`); trusted != (test.want == "") || !strings.Contains(got, test.want) || len(got) > 1000 {
				t.Errorf("answer is %.300s\nwant %s", got, test.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := granting(nil).within(ctx, 1<<40, "crypto", "v1/is_certificate_trusted", map[string]any{"cert": leaf.sent("Der"), "cert_chain": []any{root.sent("Der")}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v after the end of the request", err)
	}
}

// objects is a cluster of n objects.
type objects struct {
	n   int
	raw string
}

func (o objects) Get(context.Context, schema.GroupVersionKind, string, string, bool) ([]byte, error) {
	return []byte(o.raw), nil
}

func (o objects) List(context.Context, schema.GroupVersionKind, string, labels.Selector, fields.Selector) ([][]byte, error) {
	list := make([][]byte, o.n)
	for i := range list {
		list[i] = []byte(o.raw)
	}
	return list, nil
}

func (o objects) Review(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	return authorizationv1.SubjectAccessReviewStatus{}, nil
}

// The API server is not asked as often as a loop of a policy can.
func TestQuestionsToTheAPIServerArePaid(t *testing.T) {
	c := granting(objects{})
	question := map[string]any{"subject_access_review": map[string]any{"resource_attributes": map[string]any{"verb": "get"}}}
	if _, err := c.within(t.Context(), 3_000_000, "kubernetes", "can_i", question); err != nil {
		t.Error(err)
	}
	if _, err := c.within(t.Context(), 1_000_000, "kubernetes", "can_i", question); !errors.Is(err, errFuel) {
		t.Errorf("error is %v, want %v", err, errFuel)
	}
}

// Questions of a policy about the cluster are bounded, and it is charged for the answers,
// whatever the cluster has.
func TestHostileClusterLookups(t *testing.T) {
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","labels":{"b":"c"}},"data":{"d":["e",{"f":1,"g":2}]}}`
	deep := `{"kind":"Secret","data":` + strings.Repeat("[", 9000) + `"` + strings.Repeat("x", 1<<18) + `"` + strings.Repeat("]", 9000) + "}"
	long := strings.Repeat("a,", maxSelectorBytes)
	ask := func(more map[string]any) map[string]any {
		q := map[string]any{"api_version": "v1", "kind": "Secret", "name": "a"}
		for key, value := range more {
			q[key] = value
		}
		return q
	}
	tests := []struct {
		name, operation string
		cluster         objects
		question        map[string]any
		want            string
	}{
		{"a mask", "get_resource", objects{raw: secret}, ask(map[string]any{"field_masks": []string{"data.d.f", "metadata.none"}}), `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"d":["e",{"f":1}]}}`},
		{"a list", "list_resources_all", objects{1, secret}, ask(map[string]any{"field_masks": []string{"kind"}}), `{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}]}`},
		{"a mask that goes very deep", "get_resource", objects{raw: secret}, ask(map[string]any{"field_masks": []string{strings.Repeat("a.", 20_000)}}), "field_masks name more than 1000 fields"},
		{"very many masks", "get_resource", objects{raw: secret}, ask(map[string]any{"field_masks": strings.Split(strings.Repeat("a,", 10_000), ",")}), "field_masks name more than 1000 fields"},
		{"a mask of a very deep object", "get_resource", objects{raw: deep}, ask(map[string]any{"field_masks": []string{"data.a"}}), "out of fuel"},
		{"a long question", "get_resource", objects{raw: secret}, ask(map[string]any{"name": strings.Repeat("x", maxQuestionBytes)}), "more than 65536"},
		{"a long label selector", "list_resources_all", objects{1, secret}, ask(map[string]any{"label_selector": long}), "a selector has 8192 bytes, more than 4096"},
		{"a long field selector", "list_resources_all", objects{1, secret}, ask(map[string]any{"field_selector": long}), "a selector has 8192 bytes, more than 4096"},
		{"a list that is too long", "list_resources_all", objects{100_000, secret}, ask(nil), "the answer is longer than limits.resultBytes"},
		{"a list that takes long to be masked", "list_resources_all", objects{100, strings.Repeat(" ", 1<<24) + "{}"}, ask(map[string]any{"field_masks": []string{"kind"}}), "out of fuel"},
		{"a question about access by a long list of groups", "can_i", objects{}, map[string]any{"subject_access_review": map[string]any{"groups": strings.Split(long+strings.Repeat("a,", 30_000), ","), "resource_attributes": map[string]any{}}}, "more than 65536"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := granting(test.cluster)
			answer, err := c.within(t.Context(), 2_000_000_000, "kubernetes", test.operation, test.question)
			got := string(answer)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, test.want) || len(got) > 1000 {
				t.Errorf("answer is %.300s\nwant %s", got, test.want)
			}
		})
	}
}

// behind is a cluster whose cache has nothing yet.
type behind struct {
	objects
	fresh *int
	err   error
}

func (b behind) Get(_ context.Context, _ schema.GroupVersionKind, _, _ string, fresh bool) ([]byte, error) {
	if !fresh {
		return nil, nil
	}
	*b.fresh++
	return []byte(b.raw), b.err
}

// An object that was created a moment ago is had from the API server, as often as the policy may
// ask anything of others.
func TestObjectsThatTheCacheDoesNotHaveYet(t *testing.T) {
	question := map[string]any{"api_version": "v1", "kind": "Secret", "name": "a"}
	fresh := 0
	c := granting(behind{objects{raw: `{"kind":"Secret"}`}, &fresh, nil})
	if answer, err := c.within(t.Context(), 10_000_000, "kubernetes", "get_resource", question); err != nil || string(answer) != `{"kind":"Secret"}` || fresh != 1 {
		t.Errorf("answer is %s, %v, after %d questions to the API server", answer, err, fresh)
	}
	if _, err := c.within(t.Context(), 1_000_000, "kubernetes", "get_resource", question); !errors.Is(err, errFuel) || fresh != 1 {
		t.Errorf("error is %v after %d questions, want %v after one", err, fresh, errFuel)
	}
	c = granting(behind{err: apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", nil), fresh: &fresh})
	if _, err := c.within(t.Context(), 10_000_000, "kubernetes", "get_resource", question); err == nil || !strings.HasSuffix(err.Error(), `there is no Secret a in namespace ""`) {
		t.Errorf("without the right to get it: %v", err)
	}
}
