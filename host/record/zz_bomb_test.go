package record

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// A recording from somebody else: one call of 32 MiB of events without content.
func TestSecBomb(t *testing.T) {
	b := []byte(magic)
	b = appendFrame(b, frameHead, func(b []byte) []byte { return append(b, `{"format":1,"run":"r"}`...) })
	b = appendFrame(b, frameVersion, func(b []byte) []byte {
		v, _ := json.Marshal(&Version{Plugin: "p"})
		return append(binary.AppendUvarint(b, 1), v...)
	})
	const n = 16 << 20
	b = appendFrame(b, frameCall, func(b []byte) []byte {
		b = append(b, 1, 1, 0, 0) // version, sequence, number, marks
		b = append(b, 0, 0, 0, 0) // kind, function, args, start
		for range n {
			b = append(b, byte(Confidential), 0)
		}
		return append(b, byte(endOfCall), 0, 0, 0, 0, 0, 0)
	})
	file := filepath.Join(t.TempDir(), "1.kwrec")
	os.WriteFile(file, b, 0o600)
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	start := time.Now()
	r, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r.Summary())
	events := 0
	for _, s := range r.Sequences() {
		for c, err := range s.Calls() {
			if err != nil {
				t.Log(err)
				break
			}
			events += len(c.Events)
		}
	}
	runtime.ReadMemStats(&m1)
	t.Logf("a file of %d MB: %d events, %d MB allocated, %d MB from the system, %s", len(b)>>20, events, (m1.TotalAlloc-m0.TotalAlloc)>>20, m1.Sys>>20, time.Since(start))
}
