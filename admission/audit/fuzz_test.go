package audit

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/internal/json"
)

// FuzzState holds that any file is a state, or refused, and that what is read of it is
// written as it was read.
func FuzzState(f *testing.F) {
	j := &journal{buffer: []byte(journalHeader)}
	s := newState()
	s.id(policyKey{"p", "1"})
	s.namespaces["shop"] = [16]byte{1}
	k := s.resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	k.put(objectKey{"shop", "web"}, &record{version: "7", passed: s.intern([]uint32{0}), findings: []finding{{outcome: Denied, message: "no", since: 1}}})
	k.position, k.plan = "9", "x"
	s.write(j)
	f.Add(j.buffer)
	f.Add(j.buffer[:len(j.buffer)-3])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		read, _, good, ok := readState(data)
		if !ok {
			return
		}
		if good > len(data) {
			t.Fatalf("%d of %d bytes are good", good, len(data))
		}
		again := &journal{buffer: []byte(journalHeader)}
		read.write(again)
		second, _, good, ok := readState(again.buffer)
		if !ok || good != len(again.buffer) {
			t.Fatalf("of what was written, %d of %d bytes are good", good, len(again.buffer))
		}
		if second.frames() != read.frames() {
			t.Errorf("%d frames, and %d after they were written", read.frames(), second.frames())
		}
	})
}

// FuzzObject holds that what policies see of an object is JSON whatever an API server sends,
// and that an event is read or refused.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","resourceVersion":"7","managedFields":[],"labels":{"\u0061":"b"}},"status":{}}}`))
	f.Add([]byte(`{"type":"ERROR","object":{"code":410,"reason":"Expired"}}`))
	f.Add([]byte(`{"type":"MODIFIED","object":[1]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parseEvent(line)
		if err != nil {
			return
		}
		var o object
		o.read(e.object, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, true)
		if e.object != nil && !json.Valid(o.json) {
			t.Errorf("%s of %s", o.json, line)
		}
	})
}
