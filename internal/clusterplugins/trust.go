package clusterplugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/oci"
)

// ModuleTrusts are the objects that decide on the plugins of namespaces.
var ModuleTrusts = Resource{"ModuleTrust", "moduletrusts"}

// trust is the spec of a ModuleTrust: see ModuleTrustSpec of the API.
type trust struct {
	NamespaceSelector string      `json:"namespaceSelector"`
	Repositories      []string    `json:"repositories"`
	Signatures        *oci.Trust  `json:"signatures"`
	Inline            bool        `json:"inline"`
	Grants            []string    `json:"grants"`
	Limits            host.Limits `json:"limits"`
	Quota             quota       `json:"quota"`
}

// quota is what the policies of a namespace may have together, 0 for no bound.
type quota struct {
	Policies      int               `json:"policies"`
	Instances     int               `json:"instances"`
	MemoryBytes   resource.Quantity `json:"memoryBytes"`
	FuelPerSecond int64             `json:"fuelPerSecond"`
}

// Trusts are the ModuleTrusts of a cluster. Without any, nothing is restricted by them.
type Trusts []trust

// TrustsOf returns the trusts of the objects that are ModuleTrusts. One with a mistake allows nothing
// and selects no namespace; the error joins the mistakes.
func TrustsOf(objects []Object) (all Trusts, err error) {
	for i := range objects {
		if objects[i].Kind != ModuleTrusts.Kind {
			continue
		}
		var t trust
		mistake := ErrTooLarge
		if objects[i].Spec != nil {
			mistake = configfile.JSON(objects[i].Spec, &t)
			if _, selectorErr := labels.Parse(t.NamespaceSelector); selectorErr != nil {
				mistake = errors.Join(mistake, fmt.Errorf("namespaceSelector: %w", selectorErr))
			}
			mistake = errors.Join(mistake, signaturesErr(t.Signatures))
			if q := t.Quota; min(q.Policies, q.Instances, q.MemoryBytes.Sign()) < 0 || q.FuelPerSecond < 0 { // 0 would be no bound.
				mistake = errors.Join(mistake, errors.New("quota: a bound is less than 0"))
			}
		}
		if mistake != nil {
			err = errors.Join(err, fmt.Errorf("ModuleTrust %q: %w", objects[i].Name, mistake))
			t = trust{NamespaceSelector: "kubewasm.dev/none,!kubewasm.dev/none"}
		}
		all = append(all, t)
	}
	return all, err
}

// signaturesErr returns what is wrong with the signatures of a ModuleTrust.
func signaturesErr(s *oci.Trust) error {
	if s == nil {
		return nil
	}
	var errs []error
	if s.Repositories != nil || s.Unsigned || s.RefuseDowngrades {
		errs = append(errs, errors.New("signatures: want allOf, anyOf and minimum alone"))
	}
	if len(s.AllOf)+len(s.AnyOf) == 0 {
		errs = append(errs, errors.New("signatures: allOf and anyOf are empty"))
	}
	for _, signer := range slices.Concat(s.AllOf, s.AnyOf) {
		if signer.KeyFile != "" {
			errs = append(errs, errors.New("signatures: keyFile is a file of the process: set key"))
		}
	}
	return errors.Join(errs...)
}

// Allowed holds the permissions and bounds of the plugins of a namespace. Several ModuleTrusts add up:
// each permission of one counts, and the largest bound.
type Allowed struct {
	namespace string
	trusts    Trusts
}

// For returns what a namespace with some labels may have, nil if there is no ModuleTrust in the cluster.
// The error is that none selects the namespace.
func (t Trusts) For(namespace string, of map[string]string) (*Allowed, error) {
	if len(t) == 0 {
		return nil, nil
	}
	a := &Allowed{namespace: namespace}
	for _, one := range t {
		if selector, err := labels.Parse(one.NamespaceSelector); err == nil && selector.Matches(labels.Set(of)) {
			a.trusts = append(a.trusts, one)
		}
	}
	if len(a.trusts) == 0 {
		return a, fmt.Errorf("no ModuleTrust selects the namespace %q", namespace)
	}
	return a, nil
}

// any reports whether a trust allows something. All is allowed without ModuleTrusts.
func (a *Allowed) any(is func(*trust) bool) bool {
	if a == nil {
		return true
	}
	for i := range a.trusts {
		if is(&a.trusts[i]) {
			return true
		}
	}
	return false
}

// Module returns an error unless a module may be loaded: credentials of a process go to no other
// registry.
func (a *Allowed) Module(m *host.ModuleConfig, path string) error {
	if a == nil {
		return nil
	}
	if m.OCI == "" {
		if (m.Bytes != nil || m.ConfigMap != nil || m.Secret != nil) && !a.any(func(t *trust) bool { return t.Inline }) {
			return fmt.Errorf("%s is in the cluster, and no ModuleTrust allows the namespace %q modules that come from no registry", path, a.namespace)
		}
		return nil
	}
	ref, err := oci.ParseReference(m.OCI)
	if err != nil {
		return fmt.Errorf("%s.oci: %w", path, err)
	}
	return a.Repository(ref)
}

// Repository returns an error unless artifacts of a repository may be fetched.
func (a *Allowed) Repository(ref oci.Reference) error {
	name := ref.Name()
	if !a.any(func(t *trust) bool {
		return slices.ContainsFunc(t.Repositories, func(p string) bool { return covers(p, name) })
	}) {
		return fmt.Errorf("no ModuleTrust allows the namespace %q modules of %s", a.namespace, name)
	}
	return nil
}

// Signatures returns the rules for artifacts of a repository, of which one must hold. It returns nothing
// if a ModuleTrust allows artifacts that nobody has signed.
func (a *Allowed) Signatures(ref oci.Reference) (rules []oci.Trust) {
	if a == nil {
		return nil
	}
	name := ref.Name()
	for i := range a.trusts {
		t := &a.trusts[i]
		if !slices.ContainsFunc(t.Repositories, func(p string) bool { return covers(p, name) }) {
			continue
		}
		if t.Signatures == nil {
			return nil
		}
		rules = append(rules, *t.Signatures)
	}
	return rules
}

// Verify returns the digest of an artifact that satisfies one of some rules. The error is an
// [oci.TrustError] if its signatures satisfy none. While a rule cannot be verified, as with a
// registry that is away, it is the error of that rule.
func Verify(ctx context.Context, client *oci.Client, ref oci.Reference, rules []oci.Trust) (digest string, err error) {
	var unknown error
	for i := range rules {
		digest, _, one := client.Verify(ctx, ref, rules[i])
		if one == nil {
			return digest, nil
		}
		if !errors.As(one, new(*oci.TrustError)) {
			unknown = errors.Join(unknown, one)
		}
		err = errors.Join(err, one)
	}
	return "", cmp.Or(unknown, err)
}

// ByIdentity reports whether a rule has an identity: what it holds for changes with the trusted root.
func ByIdentity(rules []oci.Trust) bool {
	return slices.ContainsFunc(rules, func(t oci.Trust) bool {
		return slices.ContainsFunc(slices.Concat(t.AllOf, t.AnyOf), func(s oci.Signer) bool { return s.Identity != nil })
	})
}

// covers reports whether a pattern is for a repository.
func covers(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	ref, err := oci.ParseReference(pattern + ":latest")
	return err == nil && ref.Name() == name
}

// Grants returns the grants that are not allowed. Without ModuleTrusts a namespace has none.
func (a *Allowed) Grants(grants []string) (refused []string) {
	for _, grant := range grants {
		if a == nil || !a.any(func(t *trust) bool { return slices.Contains(t.Grants, grant) }) {
			refused = append(refused, grant)
		}
	}
	return refused
}

// Limits returns the names of limits that are larger than their defaults, and than those allowed.
func (a *Allowed) Limits(limits host.Limits) (names []string) {
	got, standard := reflect.ValueOf(limits), reflect.ValueOf(host.DefaultLimits())
	for i := range got.NumField() {
		larger := func(than reflect.Value) bool {
			if v := got.Field(i); v.CanUint() {
				return v.Uint() > than.Field(i).Uint()
			}
			return got.Field(i).CanInt() && got.Field(i).Int() > than.Field(i).Int()
		}
		if larger(standard) && (a == nil || !a.any(func(t *trust) bool { return !larger(reflect.ValueOf(t.Limits)) })) {
			name, _, _ := strings.Cut(got.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// FuelPerSecond returns the fuel that the policies of the namespace may use in a second together, 0 for
// no bound.
func (a *Allowed) FuelPerSecond() int64 {
	return int64(a.bound(func(q *quota) uint64 { return uint64(max(q.FuelPerSecond, 0)) }))
}

// bound returns the largest of a bound of the quotas, 0 if one of them has none.
func (a *Allowed) bound(of func(*quota) uint64) (most uint64) {
	if a == nil {
		return 0
	}
	for i := range a.trusts {
		n := of(&a.trusts[i].Quota)
		if n == 0 {
			return 0
		}
		most = max(most, n)
	}
	return most
}

// Usage is the sum of the policies of a namespace: the calls that may run at the same time, and their
// memory.
type Usage struct {
	policies, instances int
	memory              uint64
}

// Add adds a policy, whose Instances of limits default to instances. If the namespace may not have it,
// the error is returned and nothing added.
func (a *Allowed) Add(u *Usage, limits host.Limits, instances int) error {
	limits = limits.Or(host.DefaultLimits())
	if limits.Instances > 0 {
		instances = limits.Instances
	}
	next := Usage{u.policies + 1, u.instances + instances, u.memory + uint64(instances)*limits.MemoryBytes}
	for _, q := range []struct {
		name, hint string
		used       uint64
		of         func(*quota) uint64
	}{
		{"policies", "", uint64(next.policies), func(q *quota) uint64 { return uint64(max(q.Policies, 0)) }},
		{"instances", ": lower limits.instances", uint64(next.instances), func(q *quota) uint64 { return uint64(max(q.Instances, 0)) }},
		{"bytes of memory", ": lower limits.memoryBytes or limits.instances", next.memory, func(q *quota) uint64 { return uint64(max(q.MemoryBytes.Value(), 0)) }},
	} {
		if most := a.bound(q.of); most != 0 && q.used > most {
			return fmt.Errorf("the policies of the namespace %q may have %d %s together, and with this one have %d%s", a.namespace, most, q.name, q.used, q.hint)
		}
	}
	*u = next
	return nil
}

// pins reports whether a pin is one of the artifacts that a spec declares: whoever may write a status
// chooses no other repository.
func pins(pin, declared string) bool {
	p, err := oci.ParseReference(pin)
	if err != nil || p.Digest == "" {
		return false
	}
	d, err := oci.ParseReference(declared)
	return err == nil && p.Name() == d.Name() && (d.Digest == "" || d.Digest == p.Digest)
}
