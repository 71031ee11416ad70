package serviceschema

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// encodeTime encodes a Timestamp, in JSON a text as in RFC 3339, or a Duration, one as 1.5s or
// 2h30m.
func encodeTime(of protoreflect.FullName, text []byte) ([]byte, error) {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("want a text, not %.40s", text)
	}
	if of == Duration {
		d, err := time.ParseDuration(s)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(durationpb.New(d))
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(timestamppb.New(t))
}

// decodeTime returns a Timestamp or a Duration as the text that encodeTime reads.
func decodeTime(of protoreflect.FullName, b []byte) (string, error) {
	if of == Duration {
		d := &durationpb.Duration{}
		if err := proto.Unmarshal(b, d); err != nil {
			return "", err
		}
		return d.AsDuration().String(), d.CheckValid()
	}
	t := &timestamppb.Timestamp{}
	if err := proto.Unmarshal(b, t); err != nil {
		return "", err
	}
	return t.AsTime().Format(time.RFC3339Nano), t.CheckValid()
}
