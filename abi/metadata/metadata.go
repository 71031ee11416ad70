package metadata

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kubewasm/kubewasm/abi"
)

// maxBytes is the maximum length of the section.
const maxBytes = 64 << 10

// Metadata is a guest's description of itself. It is a claim: a host relies on
// the functions that the guest implements and on its imports instead.
type Metadata struct {
	// Name is the name that the author gave the plugin; users may load it under
	// another.
	Name string `json:"name,omitempty"`
	// Version is the author's, semantic by convention.
	Version string `json:"version,omitempty"`
	// Source is the URL of the source code, Licenses an expression of SPDX licences, such as
	// "Apache-2.0 OR MIT".
	Source   string `json:"source,omitempty"`
	Licenses string `json:"licenses,omitempty"`
	// Kinds are the kinds of plugin that the guest is, as [abi.Kind.String]
	// names them.
	Kinds []string `json:"kinds,omitempty"`
	// Reads names the fields of objects that the guest reads, as in
	// "node.metadata.labels"; none means everything.
	Reads []string `json:"reads,omitempty"`
	// Decides names the fields that the decisions of a hook may set, as in
	// "cpu_shares" and "container_envs[GOGC]"; none declares nothing. A host
	// refuses a guest that names a field which it does not grant.
	Decides []string `json:"decides,omitempty"`
	// Matches are the operations and resources that an admission plugin is for; none
	// declares nothing. A host warns if its configuration sends the plugin others, other
	// versions included, or not all of these.
	Matches []Rule `json:"matches,omitempty"`
	// State is the form in which the guest keeps the state that its instances share: a version
	// with the same one goes on with the state of the version before it. With none, each version
	// begins with an empty state.
	State string `json:"state,omitempty"`
	// SDK is the module of the SDK and its version.
	SDK string `json:"sdk,omitempty"`
	// ABI is the version of the ABI, 1.
	ABI int `json:"abi"`
}

// Rule is some operations on some resources, with the names and the meaning that it has
// in a webhook configuration. No list is empty.
type Rule struct {
	Operations  []string `json:"operations"`
	APIGroups   []string `json:"apiGroups"`
	APIVersions []string `json:"apiVersions"`
	Resources   []string `json:"resources"`
}

var (
	operations = []string{"*", "CREATE", "UPDATE", "DELETE", "CONNECT"}
	groupRE    = regexp.MustCompile(`^(\*|([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?)$`)
	versionRE  = regexp.MustCompile(`^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`)
	resourceRE = regexp.MustCompile(`^(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)(/(\*|[-a-zA-Z0-9./]+))?$`)
)

// validate returns every mistake of a rule.
func (r *Rule) validate() (errs []error) {
	for _, list := range []struct {
		what   string
		values []string
		right  func(string) bool
		want   string
	}{
		{"operations", r.Operations, func(s string) bool { return slices.Contains(operations, s) }, "CREATE, UPDATE, DELETE, CONNECT or *"},
		{"apiGroups", r.APIGroups, groupRE.MatchString, "a group such as apps, nothing for the core group, or *"},
		{"apiVersions", r.APIVersions, versionRE.MatchString, "a version such as v1, without its group, or *"},
		{"resources", r.Resources, resourceRE.MatchString, "a resource in lower case and the plural, such as pods or pods/status, or *"},
	} {
		if len(list.values) == 0 {
			errs = append(errs, fmt.Errorf("matches: %s is empty", list.what))
		}
		for _, value := range list.values {
			if !list.right(value) || len(value) > 253 {
				errs = append(errs, fmt.Errorf("matches: %s has %.40q, want %s", list.what, value, list.want))
			}
		}
	}
	return errs
}

// Parse reads the contents of the section. Fields that this version does not
// know are ignored. The error names every mistake.
func Parse(section []byte) (*Metadata, error) {
	if len(section) > maxBytes {
		return nil, fmt.Errorf("metadata: %d bytes are more than %d", len(section), maxBytes)
	}
	m := &Metadata{}
	if err := json.Unmarshal(section, m); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// kinds are the kinds that a guest may be.
var kinds = []string{abi.KindScheduler.String(), abi.KindAdmission.String(), abi.KindHook.String(), abi.KindService.String()}

// Validate returns every mistake: an ABI that is not 1, an unknown kind, text with
// control characters or of more than 253 bytes, a rule that matches nothing.
func (m *Metadata) Validate() error {
	var errs []error
	if m.ABI != 1 {
		errs = append(errs, fmt.Errorf("abi is %d, want 1", m.ABI))
	}
	for _, kind := range m.Kinds {
		if !slices.Contains(kinds, kind) {
			errs = append(errs, fmt.Errorf("kind %q is none of %s", kind, strings.Join(kinds, ", ")))
		}
	}
	text := func(what, s string) {
		if len(s) > 253 || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			errs = append(errs, fmt.Errorf("%s %.40q has more than 253 bytes, or some that are no text", what, s))
		}
	}
	text("name", m.Name)
	text("version", m.Version)
	text("source", m.Source)
	text("licenses", m.Licenses)
	text("state", m.State)
	text("sdk", m.SDK)
	for _, path := range m.Reads {
		text("reads", path)
	}
	for _, field := range m.Decides {
		text("decides", field)
	}
	for i := range m.Matches {
		errs = append(errs, m.Matches[i].validate()...)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// errNoModule is the error of bytes that are not a WebAssembly module.
var errNoModule = errors.New("not a WebAssembly module")

// Find returns the metadata of a module, nil if it has none. If there are
// several sections, it reads the first.
func Find(module []byte) (*Metadata, error) {
	var found []byte
	err := sections(module, func(_ []byte, name string, contents []byte) {
		if name == abi.MetadataSection && found == nil {
			found = append([]byte{}, contents...)
		}
	})
	if err != nil || found == nil {
		return nil, err
	}
	return Parse(found)
}

// Add returns the module with m as its last section, in place of any metadata
// that it had. The other sections stay the same, byte for byte.
func Add(module []byte, m *Metadata) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	contents, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(contents) > maxBytes {
		return nil, fmt.Errorf("metadata: %d bytes are more than %d", len(contents), maxBytes)
	}
	return AddSection(module, abi.MetadataSection, contents)
}

// AddSection returns the module with a custom section as its last one, in place of any of
// that name. The other sections stay the same, byte for byte.
func AddSection(module []byte, section string, contents []byte) ([]byte, error) {
	out := make([]byte, 0, len(module)+len(contents)+32)
	out = append(out, module[:min(len(module), preambleBytes)]...)
	err := sections(module, func(whole []byte, name string, _ []byte) {
		if name != section {
			out = append(out, whole...)
		}
	})
	if err != nil {
		return nil, err
	}
	body := append(binary.AppendUvarint(nil, uint64(len(section))), section...)
	body = append(body, contents...)
	out = append(out, 0) // A custom section.
	return append(binary.AppendUvarint(out, uint64(len(body))), body...), nil
}

const preambleBytes = 8

// sections calls visit with each section of a module: with all of its bytes and,
// if it is a custom one, its name and its contents.
func sections(module []byte, visit func(whole []byte, name string, contents []byte)) error {
	if len(module) < preambleBytes || !bytes.Equal(module[:preambleBytes], []byte("\x00asm\x01\x00\x00\x00")) {
		return errNoModule
	}
	for rest := module[preambleBytes:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || size > uint64(len(rest)-1-n) {
			return fmt.Errorf("%w: a section ends after it", errNoModule)
		}
		end := 1 + n + int(size)
		whole, body := rest[:end], rest[1+n:end]
		rest = rest[end:]
		if whole[0] != 0 {
			visit(whole, "", nil)
			continue
		}
		length, n := binary.Uvarint(body)
		if n <= 0 || length > uint64(len(body)-n) {
			return fmt.Errorf("%w: a custom section without a name", errNoModule)
		}
		visit(whole, string(body[n:n+int(length)]), body[n+int(length):])
	}
	return nil
}
