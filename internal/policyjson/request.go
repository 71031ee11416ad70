// Package policyjson reads and writes the JSON that policies of other ABIs exchange with their host.
package policyjson

import (
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubewasm/kubewasm/internal/json"
)

// AppendRequest appends an admission request in JSON to dst, as encoding/json would, but without
// fields that are empty or null. The objects are copied unchanged.
func AppendRequest(dst []byte, r *admissionv1.AdmissionRequest) []byte {
	o := Object{dst: append(dst, '{')}
	o.Text("uid", string(r.UID))
	o.triple("kind", "kind", r.Kind.Group, r.Kind.Version, r.Kind.Kind)
	o.triple("resource", "resource", r.Resource.Group, r.Resource.Version, r.Resource.Resource)
	o.Optional("subResource", r.SubResource)
	if k := r.RequestKind; k != nil {
		o.triple("requestKind", "kind", k.Group, k.Version, k.Kind)
	}
	if k := r.RequestResource; k != nil {
		o.triple("requestResource", "resource", k.Group, k.Version, k.Resource)
	}
	o.Optional("requestSubResource", r.RequestSubResource)
	o.Optional("name", r.Name)
	o.Optional("namespace", r.Namespace)
	o.Text("operation", string(r.Operation))
	o.Key("userInfo")
	o.dst = appendUserInfo(o.dst, &r.UserInfo, false)
	o.Raw("object", r.Object.Raw)
	o.Raw("oldObject", r.OldObject.Raw)
	if r.DryRun != nil {
		o.Bool("dryRun", *r.DryRun)
	}
	o.Raw("options", r.Options.Raw)
	return o.End()
}

// appendUserInfo writes the user of a request. If whole is set, groups and extra are written even
// if they are empty.
func appendUserInfo(dst []byte, u *authenticationv1.UserInfo, whole bool) []byte {
	o := Object{dst: append(dst, '{')}
	if whole {
		o.Text("username", u.Username)
	} else {
		o.Optional("username", u.Username)
	}
	o.Optional("uid", u.UID)
	if whole || len(u.Groups) != 0 {
		o.Key("groups")
		o.dst = appendTexts(o.dst, u.Groups)
	}
	if whole || len(u.Extra) != 0 {
		o.Key("extra")
		extra := Object{dst: append(o.dst, '{')}
		for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
			extra.Key(key)
			extra.dst = appendTexts(extra.dst, u.Extra[key])
		}
		o.dst = extra.End()
	}
	return o.End()
}

// AppendUserInfo writes the user of a request, with groups and extra even if they are empty.
func AppendUserInfo(dst []byte, u *authenticationv1.UserInfo) []byte {
	return appendUserInfo(dst, u, true)
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = append(dst, '[')
	for i, text := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = json.AppendString(dst, text)
	}
	return append(dst, ']')
}

// Object writes a JSON object.
type Object struct {
	dst   []byte
	begun bool
}

// NewObject begins an object at the end of dst.
func NewObject(dst []byte) Object { return Object{dst: append(dst, '{')} }

// Key writes the name of a member, whose value the caller appends with Append.
func (o *Object) Key(key string) {
	if o.begun {
		o.dst = append(o.dst, ',')
	}
	o.begun = true
	o.dst = append(json.AppendString(o.dst, key), ':')
}

// Append writes the bytes that f appends.
func (o *Object) Append(f func(dst []byte) []byte) { o.dst = f(o.dst) }

// Text writes a string.
func (o *Object) Text(key, value string) {
	o.Key(key)
	o.dst = json.AppendString(o.dst, value)
}

// Optional writes a string unless it is empty.
func (o *Object) Optional(key, value string) {
	if value != "" {
		o.Text(key, value)
	}
}

// Bool writes a truth value.
func (o *Object) Bool(key string, value bool) {
	o.Key(key)
	if value {
		o.dst = append(o.dst, "true"...)
	} else {
		o.dst = append(o.dst, "false"...)
	}
}

// Raw writes JSON unless it is nil.
func (o *Object) Raw(key string, value []byte) {
	if value != nil {
		o.Key(key)
		o.dst = append(o.dst, value...)
	}
}

func (o *Object) triple(key, last, group, version, name string) {
	o.Key(key)
	t := NewObject(o.dst)
	t.Text("group", group)
	t.Text("version", version)
	t.Text(last, name)
	o.dst = t.End()
}

// End ends the object and returns the extended slice.
func (o *Object) End() []byte { return append(o.dst, '}') }
