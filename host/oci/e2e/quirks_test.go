package e2e

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
)

type fault func(w http.ResponseWriter, r *http.Request, next http.Handler) bool

func isManifest(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") }

// reading reports whether a request reads a manifest.
func reading(r *http.Request) bool { return isManifest(r) && r.Method != http.MethodPut }

// answering returns a fault that has a registry answer some requests, and changes the answers.
func answering(which func(*http.Request) bool, change func(*httptest.ResponseRecorder)) fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if !which(r) {
			return false
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		change(recorder)
		for key, values := range recorder.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(recorder.Code)
		// In two writes: without a length it comes in pieces.
		body := recorder.Body.Bytes()
		for _, piece := range [][]byte{body[:len(body)/2], body[len(body)/2:]} {
			_, _ = w.Write(piece)
			w.(http.Flusher).Flush()
		}
		return true
	}
}

// without returns a change that removes headers.
func without(names ...string) func(*httptest.ResponseRecorder) {
	return func(answer *httptest.ResponseRecorder) {
		for _, name := range names {
			answer.Header()[name] = nil
		}
	}
}

func with(name, value string) func(*httptest.ResponseRecorder) {
	return func(answer *httptest.ResponseRecorder) { answer.Header().Set(name, value) }
}

// refusing returns a fault that answers some requests with a status.
func refusing(which func(*http.Request) bool, status int) fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if which(r) {
			w.WriteHeader(status)
		}
		return which(r)
	}
}

func heads(r *http.Request) bool { return isManifest(r) && r.Method == http.MethodHead }

func lists(r *http.Request) bool { return strings.Contains(r.URL.Path, "/referrers/") }

// quirk is what a registry or a proxy was seen to do.
type quirk struct {
	registry, name string
	fault          fault
	// unsigned is why an artifact without a signature is refused.
	unsigned string
	// hides says that the registry's own list of what refers to an artifact is not shown.
	hides bool
}

func quirks() []quirk {
	const none, unread = "it has no signature", "no signature of it can be read"
	list := []quirk{
		{"Zot, proxies", "manifests have no length", answering(reading, without("Content-Length")), none, false},
		{"Ollama", "manifests have neither a length nor a digest", answering(reading, without("Content-Length", "Docker-Content-Digest")), none, false},
		{"Harbor", "HEAD says less", answering(heads, with("Content-Length", "7")), none, false},
		{"Harbor", "HEAD says more", answering(heads, with("Content-Length", "70000")), none, false},
		{"Harbor", "HEAD says nothing", answering(heads, with("Content-Length", "0")), none, false},
		{"Harbor, proxies", "HEAD says more and manifests have no length", func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			return answering(heads, with("Content-Length", "70000"))(w, r, next) || answering(reading, without("Content-Length"))(w, r, next)
		}, none, false},
		{"servers of files", "everything is application/json", answering(func(r *http.Request) bool { return reading(r) || lists(r) }, with("Content-Type", "application/json; charset=utf-8")), none, false},
		{"servers of files", "nothing has a type", answering(func(r *http.Request) bool { return reading(r) || lists(r) }, without("Content-Type")), none, false},
		{"servers of files", "a digest in upper case", answering(reading, func(answer *httptest.ResponseRecorder) {
			digest := strings.TrimPrefix(answer.Header().Get("Docker-Content-Digest"), "sha256:")
			answer.Header().Set("Docker-Content-Digest", "sha256:"+strings.ToUpper(digest))
		}), none, false},
		{"proxies", "manifests are compressed without being asked for it", answering(func(r *http.Request) bool { return isManifest(r) && r.Method == http.MethodGet }, func(answer *httptest.ResponseRecorder) {
			if answer.Code != http.StatusOK {
				return
			}
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(answer.Body.Bytes())
			_ = z.Close()
			answer.Body = &b
			answer.Header().Set("Content-Encoding", "gzip")
			answer.Header().Set("Content-Length", strconv.Itoa(b.Len()))
		}), none, false},
		{"proxies", "blobs have no length", answering(func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet }, without("Content-Length")), none, false},
		{"GitLab", "the tag of a list leads to the artifact", func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			at := strings.LastIndex(r.URL.Path, "/sha256-")
			if !reading(r) || at < 0 || len(r.URL.Path) != at+len("/sha256-")+64 {
				return false
			}
			recorder := httptest.NewRecorder()
			next.ServeHTTP(recorder, r)
			if recorder.Code != http.StatusNotFound {
				return false
			}
			r.URL.Path = r.URL.Path[:at] + "/sha256:" + r.URL.Path[at+len("/sha256-"):]
			next.ServeHTTP(w, r)
			return true
		}, none, false},
	}
	for _, status := range []int{400, 403, 405, 501} {
		list = append(list, quirk{"signed URLs", fmt.Sprintf("HEAD is answered with %d", status), refusing(heads, status), none, false})
	}
	for _, status := range []int{401, 403} {
		list = append(list, quirk{"Artifactory", fmt.Sprintf("a tag that is missing is answered with %d", status), answering(reading, func(answer *httptest.ResponseRecorder) {
			if answer.Code == http.StatusNotFound {
				answer.Code = status
			}
		}), unread, false})
	}
	for _, status := range []int{400, 401, 403, 405, 406, 501} {
		list = append(list, quirk{"registries before OCI 1.1", fmt.Sprintf("referrers are answered with %d", status), refusing(lists, status), unread, true})
	}
	return append(list, quirk{"registries before OCI 1.1", "referrers are answered with a page", func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if lists(r) {
			_, _ = w.Write([]byte("<html>"))
		}
		return lists(r)
	}, unread, true})
}

// lister returns a registry that says that it keeps a list of referrers, if it keeps one.
func lister(next http.Handler, lists bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lists && isManifest(r) && r.Method == http.MethodPut {
			w.Header().Set("OCI-Subject", "sha256:"+strings.Repeat("0", 64))
		}
		next.ServeHTTP(w, r)
	})
}

// TestRegistriesAsTheyAre has two registries, one with a list of referrers and one without,
// answer as others do. What was signed is verified, what was not is refused for the right
// reason, and signatures of others stay when one is added.
func TestRegistriesAsTheyAre(t *testing.T) {
	for _, tt := range quirks() {
		for name, handler := range registries(t) {
			t.Run(tt.registry+": "+tt.name+" in front of "+name, func(t *testing.T) {
				s := newServer(t, lister(handler, name == "go-containerregistry"), false)
				ours, us := newKey(t)
				theirs, them := newKey(t)
				publisher := newClient(t, oci.Config{Registries: plain(s)})
				trusting := func(keys ...string) *oci.Client {
					var signers []oci.Signer
					for i, key := range keys {
						signers = append(signers, oci.Signer{Name: fmt.Sprint(i), Key: key})
					}
					return newClient(t, oci.Config{Registries: plain(s), Trust: []oci.Trust{{Repositories: []string{"*"}, AllOf: signers}}})
				}
				ref, unsigned := s.ref(t, "acme/zone:1"), s.ref(t, "acme/zone:unsigned")
				push(t, publisher, unsigned, module("unsigned"), oci.PushOptions{})
				digest := push(t, publisher, ref, module("1"), oci.PushOptions{})
				if _, err := publisher.Sign(t.Context(), ref, ours, oci.SignOptions{NoTag: true}); err != nil {
					t.Fatal(err)
				}

				s.setFault(tt.fault)
				hidden := tt.hides && name == "go-containerregistry"
				byDigest := ref
				byDigest.Digest = digest
				for _, ref := range []oci.Reference{ref, byDigest} {
					a, err := trusting(us).Fetch(t.Context(), ref)
					switch {
					case hidden && (err == nil || !strings.Contains(err.Error(), tt.unsigned)):
						t.Errorf("%s, whose signature is not shown: %v, want %q", ref, err, tt.unsigned)
					case !hidden && err != nil:
						t.Errorf("%s: %v", ref, err)
					case !hidden && !bytes.Equal(a.Module, module("1")):
						t.Errorf("%s is another module", ref)
					}
				}
				var refused *oci.TrustError
				if _, err := trusting(us).Fetch(t.Context(), unsigned); !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.unsigned) {
					t.Errorf("an artifact without a signature: %v, want %q", err, tt.unsigned)
				}

				// Following looks at the digest, and at nothing else where HEAD is answered.
				s.came()
				source := publisher.Source(ref.String()).(host.ConditionalSource)
				if got, revision, err := source.FetchUnless(t.Context(), digest); got != nil || revision != digest || err != nil {
					t.Errorf("following: %d bytes, %s, %v, want nothing new", len(got), revision, err)
				}

				if got := push(t, publisher, ref, module("1"), oci.PushOptions{}); got != digest {
					t.Errorf("pushed %s, want %s", got, digest)
				}
				if _, err := publisher.Sign(t.Context(), ref, theirs, oci.SignOptions{}); err != nil {
					t.Fatalf("sign: %v", err)
				}
				wanted := []string{us, them}
				if hidden {
					wanted = []string{them}
				}
				if _, err := trusting(wanted...).Fetch(t.Context(), ref); err != nil {
					t.Errorf("after another signature: %v", err)
				}
				layout := oci.Reference{Layout: t.TempDir(), Tag: "1"}
				if _, err := publisher.Copy(t.Context(), ref, layout); hidden {
					refuses := strings.HasSuffix(tt.name, "401") || strings.HasSuffix(tt.name, "403")
					if (err != nil) != refuses {
						t.Errorf("copy of what is not shown: %v", err)
					}
				} else if err != nil {
					t.Errorf("copy: %v", err)
				} else if _, err := trusting(wanted...).Fetch(t.Context(), layout); err != nil {
					t.Errorf("the copy: %v", err)
				}
			})
		}
	}
}

// TestFollowingCostsOneRequest holds that a length which HEAD does not tell is no reason for GET.
func TestFollowingCostsOneRequest(t *testing.T) {
	s := newServer(t, distribution(t, nil), false)
	ref, client := s.ref(t, "acme/zone:1"), newClient(t, oci.Config{Registries: plain(s)})
	digest := push(t, client, ref, module("1"), oci.PushOptions{})
	s.setFault(answering(reading, without("Content-Length")))
	s.came()
	if _, _, err := client.Source(ref.String()).(host.ConditionalSource).FetchUnless(t.Context(), digest); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"HEAD /v2/acme/zone/manifests/1"}, s.came()); diff != "" {
		t.Errorf("requests (-want +got)\n%s", diff)
	}
}

// TestSeveralChallenges has a registry offer other ways to log in beside the one that works.
func TestSeveralChallenges(t *testing.T) {
	issuer := newTokens(t)
	for name, offer := range map[string]func(bearer string) []string{
		"Bearer alone":            func(bearer string) []string { return []string{bearer} },
		"Basic first":             func(bearer string) []string { return []string{`Basic realm="a, b"`, bearer} },
		"Negotiate first":         func(bearer string) []string { return []string{"Negotiate", bearer} },
		"Negotiate with its data": func(bearer string) []string { return []string{"Negotiate YII=, " + bearer} },
		"all in one header": func(bearer string) []string {
			return []string{`Digest realm="x", nonce="n,", Basic realm="x", ` + bearer}
		},
		"Bearer before Basic": func(bearer string) []string { return []string{bearer + `, Basic realm="x"`} },
		"in lower case": func(bearer string) []string {
			return []string{`basic realm="x"`, "bearer" + strings.TrimPrefix(bearer, "Bearer")}
		},
		"parameters in capitals":       func(bearer string) []string { return []string{strings.Replace(bearer, "realm=", "Realm = ", 1)} },
		"Bearer without a realm first": func(bearer string) []string { return []string{"Bearer", bearer} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, distribution(t, issuer.auth(t)), false)
			cfg := oci.Config{
				Registries:   append(plain(s), oci.Registry{Host: strings.TrimPrefix(issuer.URL, "http://"), PlainHTTP: true}),
				DockerConfig: dockerConfig(t, s.host, "us", "secret"),
			}
			s.setFault(answering(func(*http.Request) bool { return true }, func(answer *httptest.ResponseRecorder) {
				if bearer := answer.Header().Get("WWW-Authenticate"); bearer != "" {
					answer.Header()["Www-Authenticate"] = offer(bearer)
				}
			}))
			ref := s.ref(t, "acme/zone:1")
			push(t, newClient(t, cfg), ref, module("1"), oci.PushOptions{})
			if a := fetch(t, newClient(t, cfg), ref); !bytes.Equal(a.Module, module("1")) {
				t.Error("another module")
			}
		})
	}
}
