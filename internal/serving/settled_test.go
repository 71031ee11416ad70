package serving

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kubewasm/kubewasm/host"
)

// written is a file of which each look sees the next state.
type written struct {
	host.Watcher
	states []string
}

func (w *written) Fetch(context.Context) ([]byte, error) {
	state := w.states[0]
	if len(w.states) > 1 {
		w.states = w.states[1:]
	}
	if state == "gone" {
		return nil, errors.New("no such file")
	}
	return []byte(state), nil
}

func TestFileCountsWhenItHasSettled(t *testing.T) {
	const first, half, whole = "plugins: [a]\n", "plugins:\n- b\n", "plugins:\n- b\n- c\n"
	for name, test := range map[string]struct {
		states []string
		want   string
	}{
		"it stays":                   {[]string{whole}, whole},
		"it was truncated first":     {[]string{"", half, whole}, whole},
		"it is written in two steps": {[]string{half, whole, whole}, whole},
		"it is gone between":         {[]string{half, "gone"}, ""},
		"it is what it was":          {[]string{first, half}, first},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &File{Watcher: &written{states: test.states}, last: []byte(first)}
				got, err := s.Fetch(t.Context())
				if string(got) != test.want || (err != nil) != (test.want == "") {
					t.Errorf("got %q, %v", got, err)
				}
			})
		})
	}
	t.Run("it is written without end", func(t *testing.T) {
		states := []string{"x"}
		for range settleLooks + 1 {
			states = append(states, states[len(states)-1]+"x")
		}
		synctest.Test(t, func(t *testing.T) {
			s := &File{Watcher: &written{states: states}}
			if got, err := s.Fetch(t.Context()); err == nil {
				t.Errorf("got %q", got)
			}
		})
	})
}
