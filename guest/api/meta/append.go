package meta

import (
	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// The functions of this file read messages of google.protobuf, and write the messages from which
// the types of this package are read. They are for generated code.

// ReadTimestamp reads a google.protobuf.Timestamp.
func ReadTimestamp(v view.Value) Time {
	if v.JSON || v.Raw == nil {
		return ReadMicroTime(v)
	}
	seconds, _ := v.Field(1)
	nanos, _ := v.Field(2)
	return Unix(int64(seconds), int32(nanos))
}

// ReadSpan reads a google.protobuf.Duration.
func ReadSpan(v view.Value) Duration {
	if v.JSON {
		return ReadDuration(v)
	}
	seconds, _ := v.Field(1)
	nanos, _ := v.Field(2)
	return Duration(seconds)*Second + Duration(int32(nanos))
}

// AppendTimestamp appends a field of type google.protobuf.Timestamp.
func AppendTimestamp(b []byte, field uint32, t Time) []byte {
	return appendPair(b, field, t.Unix(), int64(t.nanos))
}

// AppendSpan appends a field of type google.protobuf.Duration.
func AppendSpan(b []byte, field uint32, d Duration) []byte {
	return appendPair(b, field, int64(d/Second), int64(d%Second))
}

// AppendTime appends a field of type Time, which has whole seconds.
func AppendTime(b []byte, field uint32, t Time) []byte {
	if t.IsZero() { // It is encoded as nothing.
		return wire.AppendBytes(b, field, "")
	}
	return appendPair(b, field, t.Unix(), 0)
}

// AppendMicroTime appends a field of type MicroTime.
func AppendMicroTime(b []byte, field uint32, t Time) []byte {
	if t.IsZero() {
		return wire.AppendBytes(b, field, "")
	}
	return appendPair(b, field, t.Unix(), int64(t.nanos/1000*1000))
}

// AppendDuration appends a field of type Duration.
func AppendDuration(b []byte, field uint32, d Duration) []byte {
	return appendPair(b, field, int64(d), 0)
}

// AppendRaw appends a field of type RawExtension: an object in JSON.
func AppendRaw(b []byte, field uint32, raw []byte) []byte {
	b = wire.AppendBytes(b, field, "")
	start := len(b)
	return wire.EndMessage(wire.AppendBytes(b, 1, raw), start)
}

// appendPair appends a message whose fields 1 and 2 are numbers. 0 is left out.
func appendPair(b []byte, field uint32, first, second int64) []byte {
	b = wire.AppendBytes(b, field, "")
	start := len(b)
	if first != 0 {
		b = wire.AppendVarint(b, 1, uint64(first))
	}
	if second != 0 {
		b = wire.AppendVarint(b, 2, uint64(second))
	}
	return wire.EndMessage(b, start)
}
