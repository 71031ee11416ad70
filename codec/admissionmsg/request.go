package admissionmsg

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// AppendRequest appends the encoding of r, without its objects and options, to
// dst and returns the extended slice. Fields are in the order of their numbers
// and userInfo.extra in that of its keys, so that equal requests are equal
// bytes. Strings are not checked to be UTF-8.
//
// 0 allocs when dst has room and userInfo.extra at most 16 keys:
// TestAppendRequestDoesNotAllocate.
func AppendRequest(dst []byte, r *admissionv1.AdmissionRequest) []byte {
	dst = appendString(dst, 1, string(r.UID))
	dst = appendTriple(dst, 2, r.Kind.Group, r.Kind.Version, r.Kind.Kind)
	dst = appendTriple(dst, 3, r.Resource.Group, r.Resource.Version, r.Resource.Resource)
	dst = appendString(dst, 4, r.SubResource)
	dst = appendString(dst, 5, r.Name)
	dst = appendString(dst, 6, r.Namespace)
	dst = appendString(dst, 7, string(r.Operation))
	dst = appendUserInfo(dst, 8, &r.UserInfo)
	if r.DryRun != nil {
		dst = protowire.AppendTag(dst, 11, protowire.VarintType)
		dst = protowire.AppendVarint(dst, protowire.EncodeBool(*r.DryRun))
	}
	if k := r.RequestKind; k != nil {
		dst = appendTriple(dst, 13, k.Group, k.Version, k.Kind)
	}
	if k := r.RequestResource; k != nil {
		dst = appendTriple(dst, 14, k.Group, k.Version, k.Resource)
	}
	return appendString(dst, 15, r.RequestSubResource)
}

// appendString appends a field without presence: an empty one is left out.
func appendString(dst []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return appendItem(dst, field, s)
}

// appendItem appends an item of a repeated field.
func appendItem(dst []byte, field protowire.Number, s string) []byte {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return protowire.AppendString(dst, s)
}

func sizeString(field protowire.Number, s string) int {
	if s == "" {
		return 0
	}
	return sizeItem(field, s)
}

func sizeItem(field protowire.Number, s string) int {
	return protowire.SizeTag(field) + protowire.SizeBytes(len(s))
}

// appendTriple appends a GroupVersionKind or GroupVersionResource. The messages
// have the same shape.
func appendTriple(dst []byte, field protowire.Number, group, version, name string) []byte {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(sizeString(1, group)+sizeString(2, version)+sizeString(3, name)))
	dst = appendString(dst, 1, group)
	dst = appendString(dst, 2, version)
	return appendString(dst, 3, name)
}

func appendUserInfo(dst []byte, field protowire.Number, u *authenticationv1.UserInfo) []byte {
	size := sizeString(1, u.Username) + sizeString(2, u.UID)
	for _, group := range u.Groups {
		size += sizeItem(3, group)
	}
	var few [16]string
	keys := few[:0]
	for key, values := range u.Extra {
		keys = append(keys, key)
		size += protowire.SizeTag(4) + protowire.SizeBytes(sizeExtra(key, values))
	}
	slices.Sort(keys)

	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = appendString(dst, 1, u.Username)
	dst = appendString(dst, 2, u.UID)
	for _, group := range u.Groups {
		dst = appendItem(dst, 3, group)
	}
	for _, key := range keys {
		values := u.Extra[key]
		dst = protowire.AppendTag(dst, 4, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(sizeExtra(key, values)))
		// The fields of a map's entry are written even when they are empty.
		dst = appendItem(dst, 1, key)
		dst = protowire.AppendTag(dst, 2, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(sizeItems(values)))
		for _, value := range values {
			dst = appendItem(dst, 1, value)
		}
	}
	return dst
}

func sizeItems(values authenticationv1.ExtraValue) int {
	size := 0
	for _, value := range values {
		size += sizeItem(1, value)
	}
	return size
}

func sizeExtra(key string, values authenticationv1.ExtraValue) int {
	return sizeItem(1, key) + protowire.SizeTag(2) + protowire.SizeBytes(sizeItems(values))
}
