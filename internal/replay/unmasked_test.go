package replay

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/recording"
)

// TestQuestionsOfTheOldModuleReplaceMaskedOnes has a replay whose log lines have other lengths, and
// that looks at the clock more or less often than the recorded call.
func TestQuestionsOfTheOldModuleReplaceMaskedOnes(t *testing.T) {
	v := &recording.Version{Imports: []recording.Import{
		{Module: "example.v1.Host", Name: "Ask"}, {Module: "wasi_snapshot_preview1", Name: "clock_time_get"}, {Module: "example.v1.Host", Name: "Tell"},
	}}
	const ask, clock, tell = 0, 1, 2
	call := func(index int, data string) []recording.Event {
		e := []recording.Event{{Kind: recording.Host, Index: index}}
		if data != "" {
			e = append(e, recording.Event{Kind: recording.Read, Data: []byte(data)})
		}
		return append(e, recording.Event{Kind: recording.HostReturned})
	}
	events := func(calls ...[]recording.Event) *recording.Call {
		c := &recording.Call{Version: v, Marks: recording.Secret}
		for _, events := range calls {
			c.Events = append(c.Events, events...)
		}
		return c
	}
	looks := call(clock, "")
	for name, c := range map[string]struct {
		recorded, played *recording.Call
		want             []string
	}{
		"a line of another length":     {events(call(tell, "xxx"), call(ask, "xx")), events(call(tell, "abcd"), call(ask, "ab")), []string{"xxx", "ab"}},
		"more looks at the clock":      {events(call(ask, "xx")), events(looks, looks, call(ask, "ab")), []string{"ab"}},
		"fewer looks at the clock":     {events(looks, call(ask, "xx"), looks, call(ask, "yx")), events(call(ask, "ab"), call(ask, "yb")), []string{"ab", "yb"}},
		"another question":             {events(call(ask, "xx"), call(ask, "xx")), events(call(tell, "ab"), call(ask, "cd")), []string{"xx", "xx"}},
		"fewer questions":              {events(call(ask, "xx"), call(ask, "xx")), events(call(ask, "ab")), []string{"ab", "xx"}},
		"a question of another length": {events(call(ask, "xx")), events(call(ask, "abc")), []string{"xx"}},
	} {
		var got []string
		for _, e := range unmasked(c.recorded, c.played).Events {
			if e.Kind == recording.Read {
				got = append(got, string(e.Data))
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: bytes of the guest (-want +got):\n%s", name, diff)
		}
	}
}
