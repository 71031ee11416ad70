package kubewarden

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/internal/policyjson"
)

// lookupHost answers with the addresses of a host name.
func (c *hostCapabilities) lookupHost(b *budget, payload []byte) ([]byte, error) {
	var name string
	if err := b.read(payload, maxQuestionBytes, &name); err != nil {
		return nil, err
	}
	ctx, cancel, err := b.leave()
	if err != nil {
		return nil, err
	}
	defer cancel()
	return c.Caller.LookupHost(ctx, name, func(addresses []string) []byte {
		if addresses == nil {
			addresses = []string{}
		}
		return encode(map[string]any{"ips": addresses})
	})
}

// encode returns JSON of maps, texts and booleans.
func encode(v any) []byte {
	data, _ := json.Marshal(v) // Never fails for these types.
	return data
}

// image reads a question that consists of an image name.
func (b *budget) image(payload []byte) (capabilities.Image, error) {
	var text string
	if err := b.read(payload, maxQuestionBytes, &text); err != nil {
		return capabilities.Image{}, err
	}
	return capabilities.ParseImage(text)
}

func (c *hostCapabilities) digest(b *budget, payload []byte) ([]byte, error) {
	image, err := b.image(payload)
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := b.leave()
	if err != nil {
		return nil, err
	}
	defer cancel()
	digest, err := c.Caller.Digest(ctx, image)
	if err != nil {
		return nil, err
	}
	return encode(map[string]string{"digest": digest}), nil
}

func (c *hostCapabilities) manifest(b *budget, payload []byte) ([]byte, error) {
	image, err := b.image(payload)
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := b.leave()
	if err != nil {
		return nil, err
	}
	defer cancel()
	return c.Caller.Manifest(ctx, image)
}

func (c *hostCapabilities) manifestConfig(b *budget, payload []byte) ([]byte, error) {
	image, err := b.image(payload)
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := b.leave()
	if err != nil {
		return nil, err
	}
	defer cancel()
	return c.Caller.Config(ctx, image, func(manifest []byte, digest string, config []byte) []byte {
		o := policyjson.NewObject(make([]byte, 0, len(manifest)+len(config)+128))
		o.Raw("manifest", manifest)
		o.Text("digest", digest)
		o.Raw("config", config)
		return o.End()
	})
}

// Limits of a question about signatures, and the cost of searching one signer among those of an
// artifact, in nanoseconds.
const (
	maxSignaturesBytes = 1 << 20
	maxSigners         = 32
	signerWork         = 1_000_000
)

// verifyQuestion is the question of v2/verify. Its type determines which fields count; v1/verify
// uses the type as the name of an object instead.
type verifyQuestion struct {
	Type        string             `json:"type"`
	Image       policyjson.Text    `json:"image"`
	Annotations *map[string]string `json:"annotations"`

	PubKeys       []string          `json:"pub_keys"`
	Keyless       []keylessIdentity `json:"keyless"`
	KeylessPrefix []keylessIdentity `json:"keyless_prefix"`

	Owner string  `json:"owner"`
	Repo  *string `json:"repo"`

	// Policies send bytes as numbers.
	Certificate        []byte    `json:"certificate"`
	CertificateChain   *[][]byte `json:"certificate_chain"`
	RequireRekorBundle bool      `json:"require_rekor_bundle"`
}

type keylessIdentity struct {
	Issuer    string `json:"issuer"`
	Subject   string `json:"subject"`
	URLPrefix string `json:"url_prefix"`
}

// The types of questions about signatures.
const (
	byKeys        = "SigstorePubKeyVerify"
	byIdentities  = "SigstoreKeylessVerify"
	byPrefixes    = "SigstoreKeylessPrefixVerify"
	byGitHub      = "SigstoreGithubActionsVerify"
	byCertificate = "SigstoreCertificateVerify"
)

// verify reports whether an image has the wanted signatures, with its digest. As in Kubewarden, a
// missing signature is an error.
func (c *hostCapabilities) verify(b *budget, payload []byte, second bool) ([]byte, error) {
	q, err := b.signatures(payload, second)
	if err != nil {
		return nil, err
	}
	image, err := capabilities.ParseImage(string(q.Image))
	if err != nil {
		return nil, err
	}
	wanted, err := q.wanted()
	if err != nil {
		return nil, err
	}
	b.work(signerWork * (1 + len(wanted.Keys) + len(wanted.Identities)))
	ctx, cancel, err := b.leave()
	if err != nil {
		return nil, err
	}
	defer cancel()
	digest, err := c.Caller.Verify(ctx, image, wanted)
	if err != nil {
		return nil, err
	}
	return encode(map[string]any{"is_trusted": true, "digest": digest}), nil
}

// signatures reads a question about signatures.
func (b *budget) signatures(payload []byte, second bool) (*verifyQuestion, error) {
	if second {
		q := new(verifyQuestion)
		if err := b.read(payload, maxSignaturesBytes, q); err != nil {
			return nil, err
		}
		return q, nil
	}
	var first map[string]*verifyQuestion
	if err := b.read(payload, maxSignaturesBytes, &first); err != nil {
		return nil, err
	}
	for kind, q := range first {
		if len(first) != 1 || q == nil {
			break
		}
		if kind != byKeys && kind != byIdentities {
			return nil, fmt.Errorf("it asks for %.40q, want %s or %s", kind, byKeys, byIdentities)
		}
		q.Type = kind
		return q, nil
	}
	return nil, fmt.Errorf("the question has not one of %s and %s", byKeys, byIdentities)
}

// wanted returns the signatures named by the question.
func (q *verifyQuestion) wanted() (wanted capabilities.Signatures, err error) {
	if q.Annotations != nil {
		wanted.Annotations = *q.Annotations
	}
	if n := max(len(q.PubKeys), len(q.Keyless), len(q.KeylessPrefix), len(wanted.Annotations)); n > maxSigners {
		return wanted, fmt.Errorf("it wants %d signers or annotations, more than %d", n, maxSigners)
	}
	switch q.Type {
	case byKeys:
		wanted.Keys = q.PubKeys
		if len(q.PubKeys) == 0 {
			return wanted, errors.New("pub_keys is empty")
		}
	case byIdentities:
		if len(q.Keyless) == 0 {
			return wanted, errors.New("keyless is empty")
		}
		for i, k := range q.Keyless {
			if k.Issuer == "" || k.Subject == "" {
				return wanted, fmt.Errorf("keyless[%d] has no issuer or no subject", i)
			}
			wanted.Identities = append(wanted.Identities, capabilities.Identity{Issuer: k.Issuer, Subject: k.Subject})
		}
	case byPrefixes:
		if len(q.KeylessPrefix) == 0 {
			return wanted, errors.New("keyless_prefix is empty")
		}
		for i, k := range q.KeylessPrefix {
			// A prefix without its slash would also match another owner's URL.
			u, err := url.Parse(k.URLPrefix)
			if err != nil || u.Scheme == "" || u.Host == "" || k.Issuer == "" {
				return wanted, fmt.Errorf("keyless_prefix[%d] has issuer %.80q and url_prefix %.200q, want an issuer and a URL", i, k.Issuer, k.URLPrefix)
			}
			prefix := strings.TrimSuffix(u.String(), "/") + "/"
			wanted.Identities = append(wanted.Identities, capabilities.Identity{Issuer: k.Issuer, SubjectPrefix: prefix})
		}
	case byGitHub:
		if q.Owner == "" {
			return wanted, errors.New("owner is empty")
		}
		wanted.GitHub = &capabilities.GitHub{Owner: q.Owner}
		if q.Repo != nil {
			wanted.GitHub.Repository = *q.Repo
		}
		if strings.ContainsAny(wanted.GitHub.Owner+wanted.GitHub.Repository, "/?#") {
			return wanted, fmt.Errorf("owner is %.80q and repo %.80q, want names", q.Owner, wanted.GitHub.Repository)
		}
	case byCertificate:
		wanted.Certificate = &capabilities.Certificate{PEM: q.Certificate, NeedsLog: q.RequireRekorBundle}
		if q.CertificateChain != nil {
			wanted.Certificate.Chain = *q.CertificateChain
			if len(wanted.Certificate.Chain) == 0 {
				return wanted, errors.New("certificate_chain is empty")
			}
			if n := len(wanted.Certificate.Chain); n > maxChain {
				return wanted, fmt.Errorf("certificate_chain has %d certificates, more than %d", n, maxChain)
			}
		}
		for _, pem := range append([][]byte{q.Certificate}, wanted.Certificate.Chain...) {
			if len(pem) > maxCertificateBytes {
				return wanted, fmt.Errorf("a certificate has %d bytes, more than %d", len(pem), maxCertificateBytes)
			}
		}
	default:
		return wanted, fmt.Errorf("its type is %.40q, want one of %s", q.Type, strings.Join([]string{byKeys, byIdentities, byPrefixes, byGitHub, byCertificate}, ", "))
	}
	return wanted, nil
}
