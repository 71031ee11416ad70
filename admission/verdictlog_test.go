package admission_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/admission"
)

// TestDenialsAndFailuresAreLogged holds that a line names the policy, the request and the reason,
// cut to a bound, and that policies without anything to tell of write none.
func TestDenialsAndFailuresAreLogged(t *testing.T) {
	const who = `group="" kind=Pod namespace=shop name=web operation=CREATE user=kim`
	long := strings.Repeat("x", 1<<16)
	for name, test := range map[string]struct {
		value, label string
		mutate       bool
		want         string
	}{
		"a denial":                        {"deny", "not yet", false, `level=INFO msg="policy denied the request" policy=p uid=u ` + who + ` message="not yet"`},
		"a failure":                       {"error", "no data", false, `level=WARN msg="policy failed" policy=p uid=u ` + who + ` err=`},
		"a denial of a mutating webhook":  {"deny", "no", true, `level=INFO msg="policy denied the request" policy=p uid=u ` + who + ` message=no`},
		"a reason without end":            {"deny", long, false, `message=` + long[:1000]},
		"nothing of what is allowed":      {"warn", "w", false, ""},
		"nothing of an object it changes": {"label", "a=b", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			e := admission.NewEngine(script(t, "p", "", func(c *admission.PluginConfig) {
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			}))
			log.Reset() // Without what it says of its load.
			r := request(t, test.value, test.label)
			r.UID, r.Namespace, r.Name, r.UserInfo.Username, r.Operation, r.Kind.Kind = "u", "shop", "web", "kim", "CREATE", "Pod"
			if test.mutate {
				e.Mutate(t.Context(), r)
			} else {
				e.Validate(t.Context(), r)
			}
			got := log.String()
			if !strings.Contains(got, test.want) || test.want == "" && got != "" || strings.Count(got, "msg=") > 1 {
				t.Errorf("log is %.2000s\nwant %.300s", got, test.want)
			}
			if len(got) > 8<<10 {
				t.Errorf("the line has %d bytes", len(got))
			}
		})
	}
}
