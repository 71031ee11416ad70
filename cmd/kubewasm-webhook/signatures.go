package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

const (
	// verifyWait is the longest time for which objects wait for signatures that are new.
	verifyWait = 3 * time.Second
	// verifications bounds those at a time.
	verifications = 4
	// An artifact is verified again after leastVerify, and while that fails after twice the time, at most
	// mostVerify. A verified one with a digest is not, or after mostVerify if the trusted root of
	// identities may have changed.
	leastVerify, mostVerify = 10 * time.Second, 5 * time.Minute
)

// errVerifying is the error of a policy whose signatures were not verified yet.
var errVerifying = errors.New("the signatures that a ModuleTrust wants are being verified")

// signatures are those of the artifacts that ModuleTrusts want to be signed.
type signatures struct {
	verify func(ref oci.Reference, rules []oci.Trust) (digest string, err error)
	// changed is called after another result.
	changed func()
	// busy has a value for each verification under way.
	busy chan struct{}

	mu sync.Mutex
	of map[string]*signature
}

// signature is an artifact with the rules for it.
type signature struct {
	ref   oci.Reference
	rules []oci.Trust
	// first is closed after the first result.
	first   chan struct{}
	running bool
	used    bool
	digest  string
	err     error
	wait    time.Duration
	next    time.Time // Zero for never.
}

func newSignatures(ctx context.Context, client *oci.Client, changed func()) *signatures {
	return &signatures{
		verify: func(ref oci.Reference, rules []oci.Trust) (string, error) {
			return clusterplugins.Verify(ctx, client, ref, rules)
		},
		changed: changed, busy: make(chan struct{}, verifications), of: map[string]*signature{},
	}
}

// wanted returns the artifact of a policy and the rules for it, none if it needs no signature.
func wanted(p *manage.PluginSpec, allowed *clusterplugins.Allowed) (ref oci.Reference, rules []oci.Trust) {
	if p.Module.OCI == "" {
		return ref, nil
	}
	ref, err := oci.ParseReference(p.Module.OCI)
	if err != nil {
		return ref, nil // It is a mistake of the policy.
	}
	return ref, allowed.Signatures(ref)
}

// get returns the signature of an artifact, whose first verification begins if it is new.
func (s *signatures) get(ref oci.Reference, rules []oci.Trust) *signature {
	text, err := json.Marshal(rules)
	key := fmt.Sprintf("%s %s %v", ref, text, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[key]
	if of == nil {
		of = &signature{ref: ref, rules: rules, first: make(chan struct{}), err: errVerifying}
		s.of[key] = of
		s.begin(of)
	}
	of.used = true
	return of
}

// begin verifies an artifact. s.mu is held.
func (s *signatures) begin(of *signature) {
	of.running = true
	go func() {
		s.busy <- struct{}{}
		digest, err := s.verify(of.ref, of.rules)
		<-s.busy
		s.mu.Lock()
		first := errors.Is(of.err, errVerifying)
		other := first || digest != of.digest || (err == nil) != (of.err == nil)
		if err != nil && of.err == nil && !errors.As(err, new(*oci.TrustError)) {
			digest, err, other = of.digest, nil, false // The registry is away.
		}
		of.running, of.digest, of.err = false, digest, err
		if of.wait = min(2*cmp.Or(of.wait, leastVerify/2), mostVerify); err == nil {
			of.wait = leastVerify
		}
		of.next = time.Now().Add(of.wait)
		if err == nil && of.ref.Digest != "" {
			if of.next = (time.Time{}); clusterplugins.ByIdentity(of.rules) {
				of.next = time.Now().Add(mostVerify)
			}
		}
		if first {
			close(of.first)
		}
		s.mu.Unlock()
		if other {
			s.changed()
		}
	}()
}

// result returns the digest of an artifact that was verified.
func (s *signatures) result(of *signature) (digest string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return of.digest, of.err
}

// await waits for the first results.
func (s *signatures) await(of []*signature) {
	timer := time.NewTimer(verifyWait)
	defer timer.Stop()
	for _, one := range of {
		select {
		case <-one.first:
		case <-timer.C:
			return
		}
	}
}

// sweep forgets the artifacts that were not asked for since the last call, and verifies those again that
// are due.
func (s *signatures) sweep(now time.Time, forget bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, of := range s.of {
		switch {
		case of.running:
		case forget && !of.used:
			delete(s.of, key)
		case !of.next.IsZero() && now.After(of.next):
			s.begin(of)
		}
		of.used = of.used && !forget
	}
}

// sign verifies the signatures of a policy's module, and lets the policy load what was verified.
func (s *signatures) sign(p *manage.ClusterPolicy, allowed *clusterplugins.Allowed) error {
	ref, rules := wanted(&p.Spec, allowed)
	if len(rules) == 0 || p.Unknown {
		return nil
	}
	if s == nil {
		return errors.New("the server reaches no registry")
	}
	digest, err := s.result(s.get(ref, rules))
	if err != nil {
		return err
	}
	ref.Digest = digest
	p.Spec.Module.OCI, p.Spec.Module.Follow = ref.String(), false
	return nil
}
