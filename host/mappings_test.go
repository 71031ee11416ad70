package host

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMappingsAreTakenFromWhatIsLeft(t *testing.T) {
	const most = 65_530
	for _, test := range []struct {
		name string
		has  int64 // The process, and pieces of machine code beside that.
		// pieces is of the first and the last of 60 modules of 10 MB.
		first, last int64
		refused     bool
	}{
		{"a new process", 100, 426, 53, false},
		{"a process that has a third", most / 3, 426, 6, false},
		{"a process that has half", most / 2, 0, 0, false},
		{"a process that has all but the reserve", most - most/8, 0, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &mappings{most: most}
			m.count = func() (int64, error) { return test.has + m.pieces, nil }
			if err := m.take(moduleMappings); errors.Is(err, errMappings) != test.refused {
				t.Errorf("take: %v", err)
			}
			var pieces []int64
			for range 60 {
				_, n := m.split(10 << 20)
				pieces = append(pieces, n)
			}
			if diff := cmp.Diff([]int64{test.first, test.last}, []int64{pieces[0], pieces[59]}); diff != "" {
				t.Errorf("pieces of the first and the last module (-want +got):\n%s", diff)
			}
			if m.pieces > most/3 {
				t.Errorf("%d pieces, more than a third", m.pieces)
			}
			for _, n := range pieces {
				m.join(n)
			}
			if m.pieces != 0 {
				t.Errorf("%d pieces are left", m.pieces)
			}
		})
	}
	t.Run("a system without a limit", func(t *testing.T) {
		m := &mappings{}
		if piece, n := m.split(10 << 20); piece != 0 || n != 0 || m.take(1<<40) != nil {
			t.Errorf("split into %d pieces of %d bytes", n, piece)
		}
	})
}
