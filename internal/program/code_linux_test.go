package program

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestDropCode reads all code of the test, which makes it resident, and drops it.
func TestDropCode(t *testing.T) {
	all := code()
	if len(all) == 0 {
		t.Fatal("no mapping of code is found")
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for from, size := range all {
		if _, err := io.Copy(io.Discard, io.NewSectionReader(memory, int64(from), int64(size))); err != nil {
			t.Fatal(err)
		}
	}
	before := resident(t)
	dropCode()
	if after := resident(t); before == 0 || after > before/2 {
		t.Errorf("%d KB of code are resident, and %d after it was dropped", before, after)
	}
}

// resident returns the resident part of the program's code, in KB.
func resident(t *testing.T) (kb int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	ours := false
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if from, _, ok := strings.Cut(f[0], "-"); ok {
			ours = false
			for at := range code() {
				ours = ours || fmt.Sprintf("%08x", at) == from
			}
		}
		if ours && f[0] == "Rss:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			kb += n
		}
	}
	return kb
}
