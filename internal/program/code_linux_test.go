package program

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestDropCode makes all code of the test resident, and drops it.
func TestDropCode(t *testing.T) {
	all := code()
	if len(all) == 0 {
		t.Fatal("no mapping of code is found")
	}
	const populateRead = 22
	for from, size := range all {
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, from, size, populateRead); errno == syscall.EINVAL {
			t.Skip("Linux before 5.14 cannot make pages resident")
		} else if errno != 0 {
			t.Fatal(errno)
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
