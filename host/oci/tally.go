package oci

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// tally counts the signatures of an artifact for a rule. It keeps only their signers.
type tally struct {
	rule    *rule
	keyless Keyless
	// root is the manifest that the signatures are of.
	root []byte
	n    int
	// all and any hold, for each signer of the rule, the makers of its signatures.
	all, any []votes
}

// votes are the signatures that count for one signer of a rule.
type votes struct {
	// by are the keys or identities that made them, without repetition.
	by []string
	// reasons are why others were not taken.
	reasons []error
}

// maxReasons is the maximum number of different reasons in a message for one signer.
const maxReasons = 4

func newTally(r *rule, keyless Keyless, root []byte) *tally {
	return &tally{rule: r, keyless: keyless, root: root, all: make([]votes, len(r.all)), any: make([]votes, len(r.any))}
}

// add counts a signature for the signers that may have made it.
func (t *tally) add(ctx context.Context, s *Signature) {
	t.n++
	for _, list := range []struct {
		signers []signer
		votes   []votes
	}{{t.rule.all, t.all}, {t.rule.any, t.any}} {
		for i := range list.signers {
			if ctx.Err() != nil {
				return
			}
			by, err := list.signers[i].signed(ctx, t.keyless, s, t.root)
			list.votes[i].add(by, err)
		}
	}
}

func (v *votes) add(by string, err error) {
	same := func(reason error) bool { return reason.Error() == err.Error() }
	switch {
	case err == nil && !slices.Contains(v.by, by):
		v.by = append(v.by, by)
	case err != nil && len(v.reasons) < maxReasons && !slices.ContainsFunc(v.reasons, same):
		v.reasons = append(v.reasons, err)
	}
}

// names returns the names of the signers whose signatures the rule requires, or the reason why they
// do not suffice.
func (t *tally) names() (names []string, err error) {
	if t.n == 0 {
		return nil, errors.New("it has no signature")
	}
	var missing []error
	collect := func(signers []signer, votes []votes) {
		for i := range signers {
			switch name := signers[i].Name; {
			case len(votes[i].by) == 0:
				missing = append(missing, fmt.Errorf("none of %d signatures is by %q: %w", t.n, name, errors.Join(votes[i].reasons...)))
			case !slices.Contains(names, name):
				names = append(names, name)
			}
		}
	}
	if collect(t.rule.all, t.all); len(missing) != 0 {
		return nil, errors.Join(missing...)
	}
	if len(t.rule.any) == 0 {
		return names, nil
	}
	collect(t.rule.any, t.any)
	if n := matched(t.any); n < t.rule.minimum {
		return nil, fmt.Errorf("%d of %d signers have signed, want %d: %w", n, len(t.any), t.rule.minimum, errors.Join(missing...))
	}
	return names, nil
}

// wants returns an error that names the missing signers, without text from signatures and
// libraries.
func (t *tally) wants() error {
	if t.n == 0 {
		return errors.New("it has no signature")
	}
	var missing []string
	collect := func(signers []signer, votes []votes) {
		for i := range signers {
			if len(votes[i].by) == 0 {
				missing = append(missing, fmt.Sprintf("%q", signers[i].Name))
			}
		}
	}
	if collect(t.rule.all, t.all); len(missing) == 0 {
		if collect(t.rule.any, t.any); len(t.rule.any) != 0 {
			return fmt.Errorf("%d of %d signers have signed, want %d", matched(t.any), len(t.any), t.rule.minimum)
		}
	}
	return fmt.Errorf("none of %d signatures is by %s", t.n, strings.Join(missing, ", "))
}

// matched returns the maximum number of signers that count, if each counts with a different key or
// identity: the size of a maximum matching.
func matched(all []votes) int {
	counts := map[string]int{} // Which signer counts with a key or identity.
	n := 0
	for i := range all {
		if all[i].match(all, i, counts, map[string]bool{}) {
			n++
		}
	}
	return n
}

// match finds a key or identity for a signer. Another signer gives its own up if it has an
// alternative.
func (v *votes) match(all []votes, i int, counts map[string]int, tried map[string]bool) bool {
	for _, by := range v.by {
		if tried[by] {
			continue
		}
		tried[by] = true
		if other, taken := counts[by]; !taken || all[other].match(all, other, counts, tried) {
			counts[by] = i
			return true
		}
	}
	return false
}

// distinct returns the number of signers that may count: a key counts once, however often it
// occurs.
func distinct(signers []signer) int {
	keys := map[string]bool{}
	n := 0
	for i := range signers {
		if key := signers[i].key; key == nil {
			n++
		} else if !keys[key.id] {
			keys[key.id] = true
			n++
		}
	}
	return n
}
