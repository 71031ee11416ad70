package replay

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/recording"
)

// answer is the answer of a module to a call.
type answer struct {
	dialect bool
	kind    abi.Kind
	verdict recording.Verdict
	missing string
	end     recording.End
	trap    string
	result  uint64
	// returned is the result as a text.
	returned string
	// outputs are the last values handed over by the guest, by the function that took them.
	outputs map[string]taken
	// effects are the guest's effects beside its answer, in order.
	effects []taken
	reason  []byte
	logs    []byte
	fuel    int64
	time    time.Duration
}

// taken is a value that a host function took.
type taken struct {
	by string
	// numbers are its parameters that are no addresses.
	numbers []uint64
	data    []byte
}

func (a taken) equal(b taken) bool {
	return a.by == b.by && slices.Equal(a.numbers, b.numbers) && bytes.Equal(a.data, b.data)
}

// role is the role of a host function.
type role int

const (
	// asks is a question: its content is no part of an answer.
	asks role = iota
	// hands takes a part of the answer. The last one counts.
	hands
	// acts changes something, or shows something to others.
	acts
	// explains takes a reason, and prints takes lines for the log.
	explains
	prints
)

// roles are those of the host functions of all adapters and dialects that are no questions.
var roles = map[string]role{
	"status_reason": explains, "result.status_reason": explains,
	"log": prints, "logs": prints, "__console_log": prints, "log_message": prints, "opa_println": prints, "fd_write": prints,

	"event": acts, "handle.eventrecorder.eventf": acts,
	"allow_waiting_pod": acts, "activate": acts, "reject_waiting_pod": acts, "handle.reject_waiting_pod": acts,

	"result": hands, "patch": hands, "mutated_object": hands, "decision": hands, "response": hands, "serve": hands,
	"__guest_response": hands, "__guest_error": hands, "write_output": hands,
}

// ours are the modules of the host functions of this project's adapters.
var ours = []string{
	abi.KindCommon.Module(), abi.ModuleObjects, abi.KindScheduler.Module(), abi.KindAdmission.Module(), abi.KindHook.Module(), abi.KindService.Module(),
	"wasi_snapshot_preview1",
}

// roleOf returns the role of a host function. A function of an embedder, such as a host service,
// may do anything: it acts.
func roleOf(im *recording.Import, dialect bool) role {
	if !dialect && !slices.Contains(ours, im.Module) {
		return acts
	}
	if r, ok := roles[im.Name]; ok {
		return r
	}
	if strings.HasPrefix(im.Name, "result_") || strings.HasPrefix(im.Name, "result.") {
		return hands
	}
	return asks
}

func answerOf(c *recording.Call, p *Played) *answer {
	a := &answer{dialect: c.Version.Dialect != "", kind: c.Version.Kind, missing: p.Missing, outputs: map[string]taken{}}
	if p.Call == nil {
		a.verdict = recording.Failed
		a.trap = "the guest was not called"
		return a
	}
	got := *p.Call
	got.Version = c.Version // Its kind and dialect; imports are looked up below.
	a.verdict, a.end, a.trap, a.result = recording.VerdictOf(&got), got.End, got.Trap, got.Result
	a.returned, a.fuel, a.time = got.Returned(), got.Fuel, got.Duration
	// running are the host functions that run, the innermost last.
	type call struct {
		taken
		role role
	}
	var running []call
	for i := range got.Events {
		e := &got.Events[i]
		switch e.Kind {
		case recording.Host:
			r := call{}
			if e.Index < len(p.Call.Version.Imports) {
				im := &p.Call.Version.Imports[e.Index]
				r.by, r.role = im.Name, roleOf(im, a.dialect)
				for n, v := range e.Args {
					if n >= 16 || im.Memory&(1<<n) == 0 {
						r.numbers = append(r.numbers, v)
					}
				}
			}
			running = append(running, r)
		case recording.Read:
			if n := len(running); n > 0 {
				running[n-1].data = append(running[n-1].data, e.Data...)
			}
		case recording.HostReturned:
			if len(running) == 0 {
				continue
			}
			r := running[len(running)-1]
			running = running[:len(running)-1]
			switch r.role {
			case prints:
				a.logs = append(append(a.logs, r.data...), '\n')
			case explains:
				a.reason = r.data
			case hands:
				a.outputs[r.by] = r.taken
			case acts:
				a.effects = append(a.effects, r.taken)
			}
		case recording.Text:
			if len(running) == 0 && c.Kind == recording.BySteps {
				a.outputs["result"] = taken{by: "result", data: e.Data}
			}
		case recording.Output:
			a.outputs["standard output"] = taken{by: "standard output", data: e.Data}
		}
	}
	a.logs = append(a.logs, got.Output...)
	return a
}

// answersDiffer is the gravest difference of two answers.
type answersDiffer struct {
	class  Class
	detail string
	// old and new are texts that show it.
	old, new string
}

// differs returns the gravest difference of two answers, nil if there is none.
func (a *answer) differs(b *answer) *answersDiffer {
	plain := func(class Class, detail string) *answersDiffer {
		return &answersDiffer{class, detail, a.text(class), b.text(class)}
	}
	if a.missing != "" || b.missing != "" {
		if a.missing == b.missing {
			return nil
		}
		missing, whose := b.missing, ""
		if missing == "" {
			missing, whose = a.missing, "of the old module: "
		}
		name, _, _ := strings.Cut(missing, " ")
		return plain(Unrecorded, whose+name)
	}
	switch {
	case a.verdict != b.verdict:
		return plain(Flipped, fmt.Sprintf("%s → %s", a.verdict, b.verdict))
	case a.end != b.end || a.trap != b.trap:
		return plain(Failure, "")
	case a.end == recording.Returned && a.result != b.result:
		return plain(Result, a.codes(b))
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(a.outputs)), maps.Keys(b.outputs))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		x, had := a.outputs[name]
		y, has := b.outputs[name]
		switch {
		case had != has:
			d := &answersDiffer{class: Output, detail: name, old: "nothing", new: "nothing"}
			if had {
				d.old = a.shown(x).around("")
			} else {
				d.new = b.shown(y).around("")
			}
			return d
		case !x.equal(y):
			return apart(Output, name, a.shown(x), b.shown(y))
		}
	}
	if !slices.EqualFunc(a.effects, b.effects, taken.equal) {
		return a.effectsDiffer(b)
	}
	switch {
	case !bytes.Equal(a.reason, b.reason):
		return plain(Reason, "")
	case !bytes.Equal(a.logs, b.logs):
		x, y := value{text: printable(a.logs)}, value{text: printable(b.logs)}
		return apart(Logs, "", x, y)
	}
	return nil
}

// effectsDiffer returns the first difference of the effects.
func (a *answer) effectsDiffer(b *answer) *answersDiffer {
	n := 0
	for n < min(len(a.effects), len(b.effects)) && a.effects[n].equal(b.effects[n]) {
		n++
	}
	place := func(x *answer) string {
		if n == len(x.effects) {
			return fmt.Sprintf("nothing after the %d effects", n)
		}
		return fmt.Sprintf("effect %d of %d: %s ", n+1, len(x.effects), x.effects[n].by)
	}
	d := &answersDiffer{class: Effect, old: place(a), new: place(b)}
	switch {
	case n == len(a.effects):
		d.detail = "more: " + b.effects[n].by
		d.new += b.shown(b.effects[n]).around("")
	case n == len(b.effects):
		d.detail = "fewer: " + a.effects[n].by
		d.old += a.shown(a.effects[n]).around("")
	case a.effects[n].by != b.effects[n].by:
		d.detail = a.effects[n].by + " → " + b.effects[n].by
		d.old += a.shown(a.effects[n]).around("")
		d.new += b.shown(b.effects[n]).around("")
	default:
		both := apart(Effect, a.effects[n].by, a.shown(a.effects[n]), b.shown(b.effects[n]))
		d.detail, d.old, d.new = both.detail, d.old+both.old, d.new+both.new
	}
	return d
}

// codes returns the status code and the HTTP code of two results, if they differ.
func (a *answer) codes(b *answer) string {
	if a.dialect {
		return ""
	}
	switch a.kind {
	case abi.KindAdmission:
		if x, y := a.result>>32, b.result>>32; uint32(a.result) != 0 {
			return fmt.Sprintf("HTTP code %d → %d", x, y)
		}
	case abi.KindScheduler:
		if x, y := abi.Code(int32(a.result)), abi.Code(int32(b.result)); x != y {
			return fmt.Sprintf("%s → %s", x, y)
		}
	case abi.KindService:
		return a.returned + " → " + b.returned
	}
	return ""
}

// text returns an answer for a difference of a class.
func (a *answer) text(class Class) string {
	if class == Unrecorded && a.missing != "" {
		return "asks " + cut.Marked(a.missing, maxExample)
	}
	switch {
	case a.end == recording.Stopped:
		return "stopped for its time"
	case a.end == recording.Trapped || a.trap != "":
		return cut.Marked("failed: "+a.trap, maxExample)
	}
	text := a.verdict.String()
	if class != Reason {
		text += ", result " + a.returned
	}
	if len(a.reason) != 0 {
		text += ": " + printable(a.reason)
	} else if out, ok := a.outputs["result"]; ok && class == Flipped && len(out.data) != 0 {
		text += ": " + a.shown(out).text
	}
	return cut.Marked(text, maxExample)
}
