package kube137_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// export is a function of a guest of kube-scheduler-wasm-extension, and what it returns.
type export struct {
	name   string
	result int64
}

// peerGuest returns a module whose functions do nothing but return.
func peerGuest(exports ...export) []byte {
	const i32, i64 = 0x7f, 0x7e
	section := func(id byte, contents []byte) []byte {
		return append(binary.AppendUvarint([]byte{id}, uint64(len(contents))), contents...)
	}
	functions, names, code := []byte{byte(len(exports))}, []byte{byte(len(exports) + 1)}, []byte{byte(len(exports))}
	names = append(names, "\x06memory\x02\x00"...)
	for n, e := range exports {
		// Type 0 returns nothing, 1 an i32, 2 an i64.
		body := []byte{0}
		switch e.name {
		case "enqueue", "unreserve", "postbind":
			functions = append(functions, 0)
		case "postfilter", "score", "permit":
			functions, body = append(functions, 2), append(body, 0x42)
			body = appendSigned(body, e.result)
		default:
			functions, body = append(functions, 1), append(body, 0x41)
			body = appendSigned(body, e.result)
		}
		body = append(body, 0x0b)
		code = append(append(code, byte(len(body))), body...)
		names = append(append(append(names, byte(len(e.name))), e.name...), 0, byte(n))
	}
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{3, 0x60, 0, 0, 0x60, 0, 1, i32, 0x60, 0, 1, i64}),
		section(3, functions), section(5, []byte{1, 0, 1}), section(7, names), section(10, code))
}

// appendSigned appends n in LEB128.
func appendSigned(b []byte, n int64) []byte {
	for n < -64 || n > 63 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n)&0x7f)
}

// TestPeerFunctionsThatItsHostCalls holds which functions make a guest, and which of them
// are called, as the other host has it.
func TestPeerFunctionsThatItsHostCalls(t *testing.T) {
	const none = "none of"
	for name, test := range map[string]struct {
		exports string
		// want are the functions that are called, or what the error says.
		want, refused, warned string
	}{
		"PreScore alone":                           {exports: "prescore", refused: none},
		"NormalizeScore alone":                     {exports: "normalizescore", refused: none},
		"PreScore and NormalizeScore":              {exports: "prescore normalizescore", refused: none},
		"PreBind and PostBind without Bind":        {exports: "prebind postbind", refused: none},
		"PostFilter alone":                         {exports: "postfilter", refused: none},
		"the events alone":                         {exports: "enqueue", refused: none},
		"AddPod and RemovePod alone":               {exports: "addpod removepod", refused: none},
		"PreFilter alone":                          {exports: "prefilter", want: "prefilter"},
		"Unreserve alone":                          {exports: "unreserve", want: "unreserve"},
		"PreScore with Filter, without Score":      {exports: "filter prescore", want: "filter", warned: "functions=prescore"},
		"NormalizeScore with Reserve":              {exports: "reserve normalizescore", want: "reserve", warned: "functions=normalizescore"},
		"PostFilter with Score, without Filter":    {exports: "score postfilter", want: "score", warned: "functions=postfilter"},
		"PreBind and PostBind with Permit":         {exports: "permit prebind postbind", want: "permit", warned: "prebind"},
		"AddPod with Score":                        {exports: "score addpod", want: "addpod score"},
		"all of scoring":                           {exports: "prescore score normalizescore", want: "prescore score normalizescore"},
		"all of binding":                           {exports: "prebind bind postbind", want: "prebind bind postbind"},
		"Reserve and Permit, which it has not got": {exports: "reserve permit", want: "reserve permit"},
	} {
		t.Run(name, func(t *testing.T) {
			var exports []export
			for _, name := range strings.Fields(test.exports) {
				exports = append(exports, export{name: name})
			}
			out := guarded.NewLog()
			p, err := kube137.Load(t.Context(), shared, sched.PluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{Bytes: peerGuest(exports...)}, Logger: slog.New(out)}}, nil)
			if err == nil {
				t.Cleanup(func() { _ = p.Close(context.Background()) })
			}
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) || !strings.Contains(err.Error(), "the guest has") {
					t.Errorf("got error %v, want %s", err, test.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, want := strings.Split(p.Functions().String(), ", "), strings.Fields(test.want)
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("called (-want +got):\n%s", diff)
			}
			said, _, _ := strings.Cut(out.String(), `level=INFO msg="loaded the module"`)
			if !strings.Contains(out.String(), test.warned) || test.warned == "" && (said != "" || strings.Count(out.String(), "\n") != 1) {
				t.Errorf("the log is %q, want %q", out.String(), test.warned)
			}
			// What is not called is not there, or does nothing.
			if !slices.Contains(want, "prescore") {
				wantStatus := "Skip"
				if slices.Contains(want, "score") {
					wantStatus = "Success"
				}
				if got := text(p.(fwk.PreScorePlugin).PreScore(t.Context(), kube137test.NewCycleState(), noted("p"), nil)); got != wantStatus {
					t.Errorf("PreScore answers %q, want %q", got, wantStatus)
				}
			}
			if _, ok := p.(fwk.PostFilterPlugin); ok != slices.Contains(want, "postfilter") {
				t.Error("PostFilter is there, or is not")
			}
			if !slices.Contains(want, "prebind") {
				result, status := p.(fwk.PreBindPlugin).PreBindPreFlight(t.Context(), kube137test.NewCycleState(), noted("p"), "n1")
				if !status.IsSkip() || result == nil || !result.AllowParallel {
					t.Errorf("PreBindPreFlight answers %s, %+v", text(status), result)
				}
			}
		})
	}
}

// TestPeerPostFilterResult holds that a nomination counts with every status that the
// scheduler takes it with.
func TestPeerPostFilterResult(t *testing.T) {
	cleared := &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}}
	for name, test := range map[string]struct {
		result int64
		status string
		want   *fwk.PostFilterResult
	}{
		"Success that takes a nomination away":                      {1 << 32, "Success", cleared},
		"Unschedulable that takes a nomination away":                {1<<32 | 2, "Unschedulable: ", cleared},
		"UnschedulableAndUnresolvable that takes a nomination away": {1<<32 | 3, "UnschedulableAndUnresolvable: ", cleared},
		"Unschedulable that changes nothing":                        {2, "Unschedulable: ", nil},
		"an error":                                                  {1<<32 | 1, "Error: ", nil},
		"an unknown code":                                           {1<<32 | 77, "Error: ", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, host.Config{Name: "p", Module: host.ModuleConfig{Bytes: peerGuest(export{"filter", 0}, export{"postfilter", test.result})}})
			got, status := p.(fwk.PostFilterPlugin).PostFilter(t.Context(), kube137test.NewCycleState(), noted("p"), kube137test.NodeStatuses{})
			if diff := cmp.Diff(test.want, got); diff != "" || !strings.HasPrefix(text(status)+": ", test.status) {
				t.Errorf("%s (-want +got):\n%s", text(status), diff)
			}
		})
	}
}

// TestPeerSettings holds what a guest finds that its host has settings for.
func TestPeerSettings(t *testing.T) {
	for name, test := range map[string]struct {
		args  string
		level slog.Level
		// want are what the guest was told, and lines the severities that were logged.
		want, lines string
	}{
		"nothing is set":                        {``, slog.LevelInfo, "0  asks", "012"},
		"a configuration in JSON":               {`, "guestConfig": {"reverse": true}`, slog.LevelInfo, `0 {"reverse":true} asks`, "012"},
		"a configuration that is no JSON":       {`, "guestConfig": "x: [1,"`, slog.LevelInfo, "0 x: [1, asks", "012"},
		"arguments":                             {`, "args": ["test", "preFilter", ""]`, slog.LevelInfo, "0  test, preFilter, ", "012"},
		"warnings":                              {`, "logSeverity": 1`, slog.LevelInfo, "1  asks", "12"},
		"errors":                                {`, "logSeverity": 2`, slog.LevelInfo, "2  asks", "2"},
		"nothing of what there is":              {`, "logSeverity": 3`, slog.LevelInfo, "3  asks", ""},
		"a logger that takes errors":            {``, slog.LevelError, "2  asks", "2"},
		"a logger that takes less than is said": {`, "logSeverity": 1`, slog.LevelError, "2  asks", "2"},
		"a logger that takes more than is said": {`, "logSeverity": 2`, slog.LevelDebug, "2  asks", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			out := guarded.NewLog()
			level := new(slog.LevelVar)
			level.Set(test.level)
			raw := `{"module": {"file": "../testdata/peer/asks.wasm"}` + test.args + "}"
			v, err := kube137.New("asks", shared, func(c *sched.PluginConfig) { c.Logger = slog.New(leveled{out, level}) })(t.Context(), &apiruntime.Unknown{Raw: []byte(raw)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			c := &cycle{t, v.(kube137.Plugin), noted("p"), kube137test.NewCycleState()}
			for range 2 { // What it asked for when it started is in the snapshot.
				if got := text(c.filter(zoned("n", ""))); got != "Unschedulable: "+test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			}
			for n, level := range []string{"INFO", "WARN", "ERROR"} {
				plain := "level=" + level + ` msg="line ` + string(rune('0'+n)) + `" plugin=asks function=filter`
				logged := strings.Contains(test.lines, string(rune('0'+n)))
				for _, line := range []string{plain + "\n", plain + " guest.key=value guest.!BADKEY=odd\n"} {
					if strings.Contains(out.String(), line) != logged {
						t.Errorf("the log has %q: %v, want %v:\n%s", line, !logged, logged, out.String())
					}
				}
			}
			if got, want := strings.Count(out.String(), "line "), 4*len(test.lines); got != want {
				t.Errorf("the log has %d lines, want %d:\n%s", got, want, out.String())
			}
		})
	}
}

// leveled is a handler that takes what has a level at least.
type leveled struct {
	slog.Handler
	level slog.Leveler
}

func (l leveled) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level.Level() }
func (l leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{l.Handler.WithAttrs(attrs), l.level}
}

func TestPeerSettingsThatAreWrong(t *testing.T) {
	for name, test := range map[string]struct {
		args string
		want []string
	}{
		"of every kind": {
			`{"module": {"file": "../testdata/peer/asks.wasm"}, "guestConfig": "x", "logSeverity": 4, "args": ["a", "b\u0000c"], "limits": {"heldInstances": -1}}`,
			[]string{"logSeverity is 4, want 0 to 3", `args[1] is "b\x00c", which has a NUL`, "limits.heldInstances is -1"},
		},
		"of a guest of another ABI": {
			`{"module": {"file": "../testdata/scripted.wasm"}, "logSeverity": 1, "guestConfig": "x"}`, []string{"logSeverity is only for guests of kube-scheduler-wasm-extension"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kube137.New("p", shared)(t.Context(), &apiruntime.Unknown{Raw: []byte(test.args)}, nil)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %s", err, want)
				}
			}
		})
	}
}

// TestPeerLogsCheaply holds that a line of a guest costs few allocations of the host, and
// none if the logger drops it.
func TestPeerLogsCheaply(t *testing.T) {
	for name, test := range map[string]struct {
		level slog.Level
		most  float64
	}{
		"that are logged":  {slog.LevelInfo, 60},
		"that are dropped": {slog.LevelError + 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			logger := slog.New(leveled{slog.DiscardHandler, test.level})
			p := load(t, host.Config{Name: "asks", Module: host.ModuleConfig{File: "../testdata/peer/asks.wasm"}, Logger: logger})
			c := &cycle{t, p, noted("p"), kube137test.NewCycleState()}
			n := zoned("n", "")
			c.filter(n)
			info := kube137test.NewNodeInfo(n)
			if got := testing.AllocsPerRun(100, func() {
				p.(fwk.FilterPlugin).Filter(t.Context(), c.state, c.pod, info)
			}); got > test.most {
				t.Errorf("%v allocations for ten lines, want %v at most", got, test.most)
			}
		})
	}
}
