package confidential

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/internal/wire"
)

// Rule names confidential data beside Secrets, tokens and the values of environment variables. It
// is the field confidential of a plugin's configuration. A nil Rule is the zero value.
type Rule struct {
	// Kinds are kinds of objects whose values are all sealed, but for their names: "Certificate",
	// or "Certificate.cert-manager.io" for those of one group.
	Kinds []string `json:"kinds,omitempty"`
	// Fields are names of fields whose values are sealed in any object: "password". They are
	// members of JSON, keys of maps, and fields of the request of a runtime hook. Another object
	// in protobuf is sealed as a whole if there are any, since it has no names.
	Fields []string `json:"fields,omitempty"`
	// PlainEnvironment leaves the values of environment variables as they are.
	PlainEnvironment bool `json:"plainEnvironment,omitempty"`
}

// Check returns every mistake of the rule.
func (r *Rule) Check() (errs []error) {
	for i, kind := range r.Kinds {
		if name, _, _ := strings.Cut(kind, "."); name == "" || strings.ContainsAny(kind, "/ ") {
			errs = append(errs, fmt.Errorf("confidential.kinds[%d] is %.80q, want a kind such as Certificate or Certificate.cert-manager.io", i, kind))
		}
	}
	for i, field := range r.Fields {
		if field == "" {
			errs = append(errs, fmt.Errorf("confidential.fields[%d] is empty", i))
		}
	}
	return errs
}

// Plus returns a rule with the names of both.
func (r Rule) Plus(s Rule) Rule {
	return Rule{slices.Concat(r.Kinds, s.Kinds), slices.Concat(r.Fields, s.Fields), r.PlainEnvironment || s.PlainEnvironment}
}

// Seals reports whether objects of a kind are sealed.
func (r *Rule) Seals(group, kind string) bool {
	return isBuiltin(kind) || r.names(group, kind)
}

// names reports whether the rule itself names a kind.
func (r *Rule) names(group, kind string) bool {
	return r != nil && slices.ContainsFunc(r.Kinds, func(k string) bool {
		name, of, grouped := strings.Cut(k, ".")
		return name == kind && (!grouped || of == group || group == wire.AnyGroup)
	})
}

// The kinds that all rules seal.
const (
	secretKind       = "Secret"
	tokenReviewKind  = "TokenReview"
	tokenRequestKind = "TokenRequest"
)

func isBuiltin(kind string) bool {
	return kind == secretKind || kind == tokenReviewKind || kind == tokenRequestKind
}

// field reports whether the rule names a field.
func (r *Rule) field(name string) bool { return r != nil && slices.Contains(r.Fields, name) }

// Environment reports whether values of environment variables are confidential.
func (r *Rule) Environment() bool { return r == nil || !r.PlainEnvironment }

// Extended reports whether the rule seals additional kinds or fields.
func (r *Rule) Extended() bool { return r != nil && len(r.Kinds)+len(r.Fields) != 0 }

// SealsResource reports whether the objects of a resource are sealed. The resource is named as in a
// URL of the API: "v1/secrets".
func (r *Rule) SealsResource(resource string) bool {
	group, plural := "", resource
	if i := strings.LastIndexByte(resource, '/'); i >= 0 {
		plural = resource[i+1:]
		group, _, _ = strings.Cut(resource[:i], "/")
		if strings.Count(resource, "/") < 2 {
			group = ""
		}
	}
	for _, kind := range []string{secretKind, tokenReviewKind, tokenRequestKind} {
		if plural == strings.ToLower(kind)+"s" {
			return true
		}
	}
	// Plurals follow rules of English: the rule names a kind that begins the same way.
	return r != nil && slices.ContainsFunc(r.Kinds, func(k string) bool {
		name, of, grouped := strings.Cut(strings.ToLower(k), ".")
		stem := strings.TrimSuffix(name, "y")
		return (!grouped || of == group) && strings.HasPrefix(plural, stem) && len(plural) <= len(stem)+3
	})
}
