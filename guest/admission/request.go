package admission

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Operation is the operation on the object.
type Operation string

// The operations of admission.k8s.io/v1.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// GroupVersionKind names a type of objects. The Group of the core API is empty.
type GroupVersionKind struct{ Group, Version, Kind string }

// GroupVersionResource names a resource, such as "pods". The Group of the core
// API is empty.
type GroupVersionResource struct{ Group, Version, Resource string }

// Request is a request to decide on. Its parts are fetched from the host when
// they are first read, so that a plugin pays only for those.
//
// Strings and bytes that it returns may be kept, and bytes must not be written to. The
// Request itself, and views of its objects, are valid during the call.
type Request struct {
	fetched                    part
	object, oldObject, options []byte

	uid, name, namespace, subResource, requestSubResource string
	operation                                             Operation
	kind, requestKind                                     GroupVersionKind
	resource, requestResource                             GroupVersionResource
	userInfo                                              UserInfo
	dryRun                                                bool
	// objectIndex and oldObjectIndex have the places of arrays and objects, as the host gives them.
	objectIndex, oldObjectIndex []byte
}

// part is a set of the parts of a request that have been fetched.
type part uint8

const (
	envelopePart part = 1 << iota
	objectPart
	oldObjectPart
	optionsPart

	allParts = envelopePart | objectPart | oldObjectPart | optionsPart
)

// need reports whether p has not been fetched, and marks it as fetched.
func (r *Request) need(p part) bool {
	missing := r.fetched&p == 0
	r.fetched |= p
	return missing
}

// read decodes the envelope, once.
func (r *Request) read() *Request {
	if r.need(envelopePart) {
		r.parse(fetchRequest())
	}
	return r
}

// parse decodes the message kubewasm.admission.v1.Request. The host wrote it, so
// a malformed one is no mistake of the plugin: fields that cannot be read stay empty.
func (r *Request) parse(envelope []byte) {
	for f := wire.NewReader(envelope); f.Next(); {
		switch f.Field {
		case 1:
			r.uid = f.String()
		case 2:
			r.kind.Group, r.kind.Version, r.kind.Kind = triple(f.Bytes())
		case 3:
			r.resource.Group, r.resource.Version, r.resource.Resource = triple(f.Bytes())
		case 4:
			r.subResource = f.String()
		case 5:
			r.name = f.String()
		case 6:
			r.namespace = f.String()
		case 7:
			r.operation = Operation(f.String())
		case 8:
			r.userInfo.raw = f.Bytes()
		case 11:
			r.dryRun = f.Bool()
		case 13:
			r.requestKind.Group, r.requestKind.Version, r.requestKind.Kind = triple(f.Bytes())
		case 14:
			r.requestResource.Group, r.requestResource.Version, r.requestResource.Resource = triple(f.Bytes())
		case 15:
			r.requestSubResource = f.String()
		case 101:
			r.objectIndex = f.Bytes()
		case 102:
			r.oldObjectIndex = f.Bytes()
		}
	}
}

// triple reads a GroupVersionKind or a GroupVersionResource: the messages have
// the same shape.
func triple(b []byte) (group, version, name string) {
	for f := wire.NewReader(b); f.Next(); {
		switch f.Field {
		case 1:
			group = f.String()
		case 2:
			version = f.String()
		case 3:
			name = f.String()
		}
	}
	return group, version, name
}

// UID identifies the request, not the object.
func (r *Request) UID() string { return r.read().uid }

// Kind returns the type of Object and OldObject.
func (r *Request) Kind() GroupVersionKind { return r.read().kind }

// Resource returns the resource, in the version of Kind.
func (r *Request) Resource() GroupVersionResource { return r.read().resource }

// SubResource returns the subresource, such as "status"; "" for the object
// itself.
func (r *Request) SubResource() string { return r.read().subResource }

// RequestKind returns the type that the client sent, which is not Kind if the
// API server converted the object; see matchPolicy: Equivalent.
func (r *Request) RequestKind() GroupVersionKind { return r.read().requestKind }

// RequestResource returns the resource that the client named.
func (r *Request) RequestResource() GroupVersionResource { return r.read().requestResource }

// RequestSubResource returns the subresource that the client named.
func (r *Request) RequestSubResource() string { return r.read().requestSubResource }

// Name returns the object's name. It is "" for Create if the server is to
// generate one.
func (r *Request) Name() string { return r.read().name }

// Namespace returns the object's namespace, "" if it has none.
func (r *Request) Namespace() string { return r.read().namespace }

// Operation returns the operation on the object.
func (r *Request) Operation() Operation { return r.read().operation }

// DryRun reports whether nothing will be stored, whatever the verdict is.
func (r *Request) DryRun() bool { return r.read().dryRun }

// UserInfo returns the user that makes the request.
func (r *Request) UserInfo() UserInfo { return r.read().userInfo }

// Object returns the client's desired object, in JSON, byte for byte as the API server sent it. It
// is nil for Delete.
//
// Typed views read it: core.PodFromJSON(req.Object()). They are valid during the call:
// the next call's views use their memory. Strings of views may be kept.
func (r *Request) Object() []byte {
	if r.need(objectPart) {
		r.object = fetchObject()
	}
	return r.object
}

// OldObject returns the stored object, in JSON; nil for Create and Connect. Otherwise it behaves as
// Object.
func (r *Request) OldObject() []byte {
	if r.need(oldObjectPart) {
		r.oldObject = fetchOldObject()
	}
	return r.oldObject
}

// Options returns the options of the operation, such as a meta/v1 CreateOptions,
// in JSON; nil if there are none.
func (r *Request) Options() []byte {
	if r.need(optionsPart) {
		r.options = fetchOptions()
	}
	return r.options
}

// ObjectProto returns the object as a protobuf message of the Kubernetes API,
// without managedFields, for core.PodFromProto and the like. It is nil if
// [Request.Kind] is not of the Kubernetes API, and natively: under go test there
// is only [Request.Object].
//
// The host decodes the whole object for it. It is faster if a plugin reads most of an object; for a
// few fields a view of Object is faster.
func (r *Request) ObjectProto() []byte { return fetchObjectProto() }

// OldObjectProto is ObjectProto for the stored object.
func (r *Request) OldObjectProto() []byte { return fetchOldObjectProto() }

// UserInfo is the user that makes a request.
type UserInfo struct {
	// raw is the message kubewasm.admission.v1.UserInfo.
	raw []byte
}

// Username returns the user's name, such as
// "system:serviceaccount:kube-system:replicaset-controller".
func (u UserInfo) Username() string { return u.text(1) }

// UID returns the user's identifier, which distinguishes users of the same name
// at different times.
func (u UserInfo) UID() string { return u.text(2) }

func (u UserInfo) text(field uint32) string {
	text := ""
	for f := wire.NewReader(u.raw); f.Next(); {
		if f.Field == field {
			text = f.String()
		}
	}
	return text
}

// Groups returns the groups that the user is in.
func (u UserInfo) Groups() []string { return texts(nil, u.raw, 3) }

// InGroup reports whether the user is in the group.
func (u UserInfo) InGroup(group string) bool {
	for f := wire.NewReader(u.raw); f.Next(); {
		if f.Field == 3 && f.String() == group {
			return true
		}
	}
	return false
}

// Extra returns the values that the authenticator added under key.
func (u UserInfo) Extra(key string) []string {
	var values []string
	for f := wire.NewReader(u.raw); f.Next(); {
		if f.Field != 4 {
			continue
		}
		var entryKey string
		var value []byte
		for e := wire.NewReader(f.Bytes()); e.Next(); {
			switch e.Field {
			case 1:
				entryKey = e.String()
			case 2:
				value = e.Bytes()
			}
		}
		if entryKey == key {
			values = texts(nil, value, 1)
		}
	}
	return values
}

// texts appends the items of a repeated string field.
func texts(list []string, message []byte, field uint32) []string {
	for f := wire.NewReader(message); f.Next(); {
		if f.Field == field {
			list = append(list, f.String())
		}
	}
	return list
}

// RequestFromReview returns the request of an AdmissionReview of
// admission.k8s.io/v1 in JSON, for native tests. review must not be written to
// afterwards.
//
// It reads the output of `kubectl create --dry-run=server -v=8`, an audit log, or a review in a
// test: everything but request may be missing.
func RequestFromReview(review []byte) (*Request, error) {
	if !json.Valid(review) {
		return nil, errors.New("read admission review: not valid JSON")
	}
	var request json.Value
	for m := json.Object(review); m.Next(); {
		if m.Key() == "request" {
			request = m.Value()
		}
	}
	if request.Kind() != json.KindObject {
		return nil, errors.New("read admission review: request is " + request.Kind().String() + ", want object")
	}
	r := &Request{fetched: allParts}
	for m := json.Object(request); m.Next(); {
		switch v := m.Value(); m.Key() {
		case "uid":
			r.uid = v.String()
		case "kind":
			r.kind.Group, r.kind.Version, r.kind.Kind = tripleOf(v, "kind")
		case "resource":
			r.resource.Group, r.resource.Version, r.resource.Resource = tripleOf(v, "resource")
		case "subResource":
			r.subResource = v.String()
		case "requestKind":
			r.requestKind.Group, r.requestKind.Version, r.requestKind.Kind = tripleOf(v, "kind")
		case "requestResource":
			r.requestResource.Group, r.requestResource.Version, r.requestResource.Resource = tripleOf(v, "resource")
		case "requestSubResource":
			r.requestSubResource = v.String()
		case "name":
			r.name = v.String()
		case "namespace":
			r.namespace = v.String()
		case "operation":
			r.operation = Operation(v.String())
		case "userInfo":
			r.userInfo = userInfoOf(v)
		case "dryRun":
			r.dryRun, _ = v.Bool()
		case "object":
			r.object = rawOf(v)
		case "oldObject":
			r.oldObject = rawOf(v)
		case "options":
			r.options = rawOf(v)
		}
	}
	return r, nil
}

func tripleOf(v json.Value, last string) (group, version, name string) {
	for m := json.Object(v); m.Next(); {
		switch m.Key() {
		case "group":
			group = m.Value().String()
		case "version":
			version = m.Value().String()
		case last:
			name = m.Value().String()
		}
	}
	return group, version, name
}

// rawOf returns the bytes of an object, nil for null, as the host does.
func rawOf(v json.Value) []byte {
	if v.IsNull() {
		return nil
	}
	return v
}

// userInfoOf writes the message that a host would send.
func userInfoOf(v json.Value) UserInfo {
	var raw []byte
	for m := json.Object(v); m.Next(); {
		switch m.Key() {
		case "username":
			raw = wire.AppendBytes(raw, 1, m.Value().String())
		case "uid":
			raw = wire.AppendBytes(raw, 2, m.Value().String())
		case "groups":
			for e := json.Array(m.Value()); e.Next(); {
				raw = wire.AppendBytes(raw, 3, e.Value().String())
			}
		case "extra":
			for entry := json.Object(m.Value()); entry.Next(); {
				var items []byte
				for e := json.Array(entry.Value()); e.Next(); {
					items = wire.AppendBytes(items, 1, e.Value().String())
				}
				raw = wire.AppendBytes(raw, 4, wire.AppendBytes(wire.AppendBytes(nil, 1, entry.Key()), 2, items))
			}
		}
	}
	return UserInfo{raw}
}
