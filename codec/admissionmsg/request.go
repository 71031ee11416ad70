package admissionmsg

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubewasm/kubewasm/internal/wire"
)

// AppendRequest appends the encoding of r, without its objects and options, to
// dst and returns the extended slice. Fields are in the order of their numbers
// and userInfo.extra in that of its keys, so that equal requests are equal
// bytes. Strings are not checked to be UTF-8.
//
// 0 allocs when dst has room and userInfo.extra at most 16 keys:
// TestAppendRequestDoesNotAllocate.
func AppendRequest(dst []byte, r *admissionv1.AdmissionRequest) []byte {
	dst = wire.AppendString(dst, 1, string(r.UID))
	dst = appendTriple(dst, 2, r.Kind.Group, r.Kind.Version, r.Kind.Kind)
	dst = appendTriple(dst, 3, r.Resource.Group, r.Resource.Version, r.Resource.Resource)
	dst = wire.AppendString(dst, 4, r.SubResource)
	dst = wire.AppendString(dst, 5, r.Name)
	dst = wire.AppendString(dst, 6, r.Namespace)
	dst = wire.AppendString(dst, 7, string(r.Operation))
	dst = appendUserInfo(dst, 8, &r.UserInfo)
	if r.DryRun != nil {
		dst = wire.AppendOptionalNumber(dst, 11, new(int64(protowire.EncodeBool(*r.DryRun))))
	}
	if k := r.RequestKind; k != nil {
		dst = appendTriple(dst, 13, k.Group, k.Version, k.Kind)
	}
	if k := r.RequestResource; k != nil {
		dst = appendTriple(dst, 14, k.Group, k.Version, k.Resource)
	}
	return wire.AppendString(dst, 15, r.RequestSubResource)
}

// appendTriple appends a GroupVersionKind or GroupVersionResource. The messages
// have the same shape.
func appendTriple(dst []byte, field protowire.Number, group, version, name string) []byte {
	dst, start := wire.BeginMessage(dst, field)
	dst = wire.AppendString(dst, 1, group)
	dst = wire.AppendString(dst, 2, version)
	dst = wire.AppendString(dst, 3, name)
	return wire.EndMessage(dst, start)
}

func appendUserInfo(dst []byte, field protowire.Number, u *authenticationv1.UserInfo) []byte {
	dst, start := wire.BeginMessage(dst, field)
	dst = wire.AppendString(dst, 1, u.Username)
	dst = wire.AppendString(dst, 2, u.UID)
	for _, group := range u.Groups {
		dst = wire.AppendItem(dst, 3, group)
	}
	var few [16]string
	keys := few[:0]
	for key := range u.Extra {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		dst = appendExtra(dst, 4, key, u.Extra[key])
	}
	return wire.EndMessage(dst, start)
}

// appendExtra appends an entry of a map, whose key and value are written even when they
// are empty.
func appendExtra(dst []byte, field protowire.Number, key string, values authenticationv1.ExtraValue) []byte {
	dst, start := wire.BeginMessage(dst, field)
	dst = wire.AppendItem(dst, 1, key)
	dst, startOfValue := wire.BeginMessage(dst, 2)
	for _, value := range values {
		dst = wire.AppendItem(dst, 1, value)
	}
	dst = wire.EndMessage(dst, startOfValue)
	return wire.EndMessage(dst, start)
}
