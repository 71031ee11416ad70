package canaries

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

// Recording is a recording of a parrot, and what is to come of its replay.
type Recording struct {
	Dir    string
	Module []byte
	// Calls are the calls that were made, by the ID of their script.
	Calls map[string]Call
	// Made is the number of canaries.
	Made int
	// Odd says that guests had values of other lengths than a replay has.
	Odd bool
	// Nameless says that a replay does not know what calls are about.
	Nameless bool
}

// Call is a call of a parrot.
type Call struct {
	Function string
	// Object names the subject of the call, as a replay does.
	Object string
	// Apply are the changes that a module may make to the answer.
	Apply []string
}

// classes are the groups of changes.
var classes = map[string]replay.Class{
	"verdict": replay.Flipped, "reason": replay.Reason, "log": replay.Logs, "code": replay.Result, "score": replay.Result,
	"warn": replay.Output, "patch": replay.Output, "field": replay.Output, "shares": replay.Output, "annotation": replay.Output, "text": replay.Output,
	"event": replay.Effect, "skip": replay.Effect,
}

// group are the calls of a function in a class, by what they are about, or by their number.
type group struct {
	Class    replay.Class
	Function string
}

// Holds holds that no canary is in the recording, that its module repeats each call, and that of
// changed modules exactly the calls are told apart that they answer otherwise.
func (r *Recording) Holds(t *testing.T, rt *host.Runtime, seeds ...uint32) {
	t.Helper()
	start := time.Now()
	size := NothingIn(t, r.Dir)
	recorded, err := recording.Open(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if recorded.Calls() != len(r.Calls) || recorded.Dropped() != 0 || len(recorded.Problems()) != 0 {
		t.Errorf("%d calls were made, %d are recorded, %d dropped, problems: %v", len(r.Calls), recorded.Calls(), recorded.Dropped(), recorded.Problems())
	}
	v, err := replay.Verify(t.Context(), rt, recorded, r.Module, replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// A guest that looks at the bytes of a value may take another way on masked ones.
	if v.Different != 0 || v.Skipped != 0 || v.Calls != len(r.Calls) || !r.Odd && v.Unpromised > v.Calls/100 {
		t.Errorf("of %d calls %d are repeated, %d differ, %d without a promise, %d are skipped", len(r.Calls), v.Calls, v.Different, v.Unpromised, v.Skipped)
		for n, d := range v.Differences {
			if n < 3 {
				t.Error(d)
			}
		}
	}
	// Without a reset after each call, the time of the last one decides whether a call has any.
	if v.Withheld == 0 || r.Odd && v.Exact == 0 {
		t.Errorf("of %d calls %d have masked bytes, %d have none", v.Calls, v.Withheld, v.Exact)
	}
	t.Logf("%d calls, %d bytes, %d canaries; %d calls are repeated exactly, %d as far as they are there, %d without a promise; %s",
		len(r.Calls), size, r.Made, v.Exact, v.Withheld, v.Unpromised, time.Since(start).Round(time.Millisecond))
	for _, seed := range seeds {
		r.compare(t, rt, recorded, seed)
	}
}

// compare holds that a changed module is told apart in the calls that it changes alone.
func (r *Recording) compare(t *testing.T, rt *host.Runtime, recorded *recording.Recording, seed uint32) {
	t.Helper()
	start := time.Now()
	old, changed := parrot.Seed(seed)
	if n := bytes.Count(r.Module, []byte(old)); n != 1 {
		t.Fatalf("the module has %d seeds", n)
	}
	c, err := replay.Compare(t.Context(), rt, recorded, r.Module, bytes.Replace(r.Module, []byte(old), []byte(changed), 1), "")
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[group][]string{}, map[group][]string{}
	different := 0
	for id, call := range r.Calls {
		if change := parrot.ChangeOf(fmt.Sprintf("%08x", seed), id, call.Apply); change != "" {
			g := group{classes[change], call.Function}
			want[g] = append(want[g], r.about(call.Object))
			different++
		}
	}
	for _, g := range c.Groups {
		if g.Class == replay.Unrecorded || g.Class == replay.Failure {
			t.Logf("%s: %d calls, old %s, new %s", g.Detail, g.Calls, g.Example.Old, g.Example.New)
		}
		k := group{g.Class, g.Function}
		if r.Nameless {
			got[k] = append(got[k], make([]string, g.Calls)...)
			continue
		}
		if len(g.Objects) != g.Calls {
			t.Errorf("%s of %s, %s: %d calls are about %d objects", g.Class, g.Function, g.Detail, g.Calls, len(g.Objects))
		}
		got[k] = append(got[k], g.Objects...)
	}
	for _, of := range []map[group][]string{want, got} {
		for _, list := range of {
			slices.Sort(list)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("seed %d: differences (-want +got):\n%.4000s", seed, diff)
	}
	if different == 0 || c.Different != different || c.Calls != len(r.Calls) || c.Skipped != 0 || c.Drifted != 0 {
		t.Errorf("seed %d: of %d calls %d differ, %d of %d are found, %d are skipped, %d drifted", seed, c.Calls, different, c.Different, different, c.Skipped, c.Drifted)
	}
	t.Logf("seed %d: %d of %d calls differ, in %d groups; %s", seed, c.Different, c.Calls, len(c.Groups), time.Since(start).Round(time.Millisecond))
}

func (r *Recording) about(object string) string {
	if r.Nameless {
		return ""
	}
	return object
}
