package canaries_test

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/canaries"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

// A canary is found in each form in which guests repeat it, and halves of it are.
func TestLeaksAreFound(t *testing.T) {
	m := canaries.NewMaker(1)
	m.Odd = true
	for range 100 {
		value := m.Value()
		encoded := base64.StdEncoding.EncodeToString([]byte("x" + value))
		for _, v := range []string{value, encoded, hex.EncodeToString([]byte(value))} {
			for _, as := range slices.Concat(parrot.Even, parrot.Uneven) {
				if as == "decoded" && v != encoded {
					continue // It makes other bytes of it.
				}
				text := "some text " + parrot.Op{As: as}.Text([]string{v}) + " and more"
				if len(canaries.Leaks([]byte(text))) == 0 {
					t.Errorf("%s: nothing is found in %s", as, text)
				}
			}
		}
	}
	if leaks := canaries.Leaks([]byte("seed " + m.Value()[:4])); len(leaks) != 0 {
		t.Errorf("found %v", leaks)
	}
}
