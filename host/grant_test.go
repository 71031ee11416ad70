package host_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// wants configures testdata/wants.wat with grants.
func wants(grants ...string) guest {
	cfg := config("wants")
	cfg.Grants = grants
	cfg.Imports = []host.Import{{
		Module: "test", Name: "secret", Results: []abi.ValueType{abi.I32}, Grant: "secrets",
		Func: func(_ *host.Instance, stack []uint64) { stack[0] = 42 },
	}}
	return cfg
}

func TestGrants(t *testing.T) {
	ask := func(p *host.Plugin, what uint64) uint64 {
		got, err := callFilter(t, p, 0, 0, what)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	t.Run("without clock and random", func(t *testing.T) {
		a, b := load(t, wants("secrets")), load(t, wants("secrets"))
		if got := ask(a, 0); got != ask(b, 0) || got == uint64(time.Now().Unix()) {
			t.Errorf("the clock shows %d", got)
		}
		if x, y := ask(a, 1), ask(b, 1); x != y {
			t.Errorf("the random numbers %#x and %#x differ", x, y)
		}
		if got := ask(a, 2); got != 42 {
			t.Errorf("the granted function answers %d", got)
		}
	})
	t.Run("with clock and random", func(t *testing.T) {
		a, b := load(t, wants("secrets", host.GrantClock, host.GrantRandom)), load(t, wants("secrets", host.GrantClock, host.GrantRandom))
		before := uint64(time.Now().Unix())
		if got := ask(a, 0); got < before || got > before+60 {
			t.Errorf("the clock shows %d, want about %d", got, before)
		}
		// Twice four bytes, so that equal ones are no accident.
		x, y := [2]uint64{ask(a, 1), ask(a, 1)}, [2]uint64{ask(b, 1), ask(b, 1)}
		if x == y {
			t.Errorf("the random numbers are %#x both times", x)
		}
	})
}

func TestImportsThatAreNotGranted(t *testing.T) {
	tests := map[string]struct {
		grants []string
		want   string
	}{
		"nothing granted": {nil, `plugin "wants": import test.secret needs the grant "secrets", which the configuration does not give`},
		"another one":     {[]string{host.GrantClock}, `needs the grant "secrets"`},
		"typing error":    {[]string{"secret"}, `grant "secret" is unknown; did you mean "secrets"?`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := wants(test.grants...).load(t.Context(), newRuntime(t))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
