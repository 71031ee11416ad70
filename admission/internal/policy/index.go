package policy

import (
	"context"
	"encoding/binary"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/internal/json"
)

const (
	// maxPlaces is the maximum number of places in an index. A document with more has none.
	maxPlaces = 512
	// sparse bounds the places of long documents: those of a share of the document are recorded.
	sparse = 256
)

// Index has the places of arrays and objects of a review in JSON. Guests skip them in one step.
type Index struct {
	review []byte
	places []uint64
}

// ValidIndex reports whether review is JSON, and returns its index. review must not be modified
// afterwards.
func ValidIndex(review []byte) (*Index, bool) {
	var room [maxPlaces]uint64
	ok, n := json.ValidIndex(review, room[:], len(review)/sparse)
	return &Index{review, append([]uint64(nil), room[:n]...)}, ok
}

// indexKey is the key of the index of a request in its context.
type indexKey struct{}

// WithIndex returns a context with the index of the review that the request of the context is from.
func WithIndex(ctx context.Context, x *Index) context.Context {
	return context.WithValue(ctx, indexKey{}, x)
}

// IndexOf returns the index of a context, nil if it has none.
func IndexOf(ctx context.Context) *Index {
	x, _ := ctx.Value(indexKey{}).(*Index)
	return x
}

// The numbers of the fields objectIndex and oldObjectIndex.
const (
	objectIndex    protowire.Number = 101
	oldObjectIndex protowire.Number = 102
)

// appendTo appends the places in the objects of r that lie in the review, which those that a
// mutator has changed do not, to the encoded request.
func (x *Index) appendTo(envelope []byte, r *admissionv1.AdmissionRequest) []byte {
	if x == nil || len(x.places) == 0 {
		return envelope
	}
	return x.appendPart(x.appendPart(envelope, objectIndex, r.Object.Raw), oldObjectIndex, r.OldObject.Raw)
}

// appendPart appends a field with the places in a part of the review.
func (x *Index) appendPart(dst []byte, field protowire.Number, part []byte) []byte {
	places, offset := x.of(part)
	if len(places) == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(8*len(places)))
	back := uint64(offset)<<32 | uint64(offset)
	for _, place := range places {
		dst = binary.LittleEndian.AppendUint64(dst, place-back)
	}
	return dst
}

// of returns the places of a part of the review, and the offset of the part.
func (x *Index) of(part []byte) (places []uint64, offset int) {
	if len(part) == 0 {
		return nil, 0
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(x.review)))
	if at > uintptr(len(x.review)) || uintptr(len(part)) > uintptr(len(x.review))-at {
		return nil, 0 // It lies elsewhere.
	}
	offset = int(at)
	first := json.FirstFrom(x.places, offset)
	return x.places[first:json.FirstFrom(x.places, offset+len(part))], offset
}
