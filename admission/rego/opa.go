package rego

import (
	"bytes"
	"context"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/policyjson"
	"github.com/kubewasm/kubewasm/internal/policymeta"
)

const module = "env"

// The exports, by their index in the dialect.
const (
	eval host.ExportIndex = iota
	malloc
	heapGet
	heapSet
	jsonParse
	valueDump
	valueParse
	builtinNames
	entrypointNames
	contextNew
	contextSetInput
	contextSetData
	contextEval
	contextResult
	jsonDump
	valueAddPath
	valueRemovePath
	valueFree
	blocksStash
	blocksRestore
	stashClear
)

// formatJSON makes opa_eval return its result in JSON.
const formatJSON = 0

// config is the dialect of a plugin.
type config struct {
	Config
	plugin string
	logger *slog.Logger
	// settings are those of the plugin.
	settings []byte
	// grants are the grants of the plugin's configuration, which some builtins need.
	grants []string
	// inventory holds the objects that the policy finds in data; nil if there are none.
	inventory source
	// cluster reports whether there is a cluster to look at.
	cluster bool
}

// sees reports whether the policy may see objects of a kind, at least in some namespaces.
func (cfg *config) sees(kind apischema.GroupVersionKind) bool {
	return slices.ContainsFunc(cfg.ContextAwareResources, func(k dialect.Kind) bool { return k.GroupVersionKind() == kind })
}

// imports are the functions of the host.
func (cfg *config) imports() []host.Import {
	imports := []host.Import{
		{Module: module, Name: "opa_abort", Params: i32(1), Memory: 1, Func: func(inst *host.Instance, stack []uint64) {
			text := cString(inst.Dialect(), uint32(stack[0]))
			inst.Abort(fmt.Errorf("the policy gave up: %s", cut.Text(text, inst.Limits().OutputBytes)))
		}},
		{Module: module, Name: "opa_println", Params: i32(1), Memory: 1, Func: func(inst *host.Instance, stack []uint64) {
			if text := cString(inst.Dialect(), uint32(stack[0])); cfg.logger != nil && inst.Dialect().MayLog(len(text)) {
				cfg.logger.Info(inst.Stain().Text(text), "plugin", cfg.plugin)
			}
		}},
	}
	for n := range 5 {
		imports = append(imports, host.Import{
			Module: module, Name: fmt.Sprintf("opa_builtin%d", n), Params: i32(n + 2), Results: i32(1), Memory: 1<<(n+2) - 2,
			Func: func(inst *host.Instance, stack []uint64) {
				stack[0] = uint64(callBuiltin(inst.Dialect(), uint32(stack[0]), stack[2:2+n]))
			},
		})
	}
	return imports
}

func i32(n int) []abi.ValueType { return bytes.Repeat([]abi.ValueType{abi.I32}, n) }

var exports = []host.Export{
	eval:            {Name: "opa_eval", Params: i32(7), Results: i32(1), Optional: true},
	malloc:          {Name: "opa_malloc", Params: i32(1), Results: i32(1)},
	heapGet:         {Name: "opa_heap_ptr_get", Results: i32(1)},
	heapSet:         {Name: "opa_heap_ptr_set", Params: i32(1)},
	jsonParse:       {Name: "opa_json_parse", Params: i32(2), Results: i32(1)},
	valueDump:       {Name: "opa_value_dump", Params: i32(1), Results: i32(1)},
	valueParse:      {Name: "opa_value_parse", Params: i32(2), Results: i32(1)},
	builtinNames:    {Name: "builtins", Results: i32(1)},
	entrypointNames: {Name: "entrypoints", Results: i32(1)},
	contextNew:      {Name: "opa_eval_ctx_new", Results: i32(1), Optional: true},
	contextSetInput: {Name: "opa_eval_ctx_set_input", Params: i32(2), Optional: true},
	contextSetData:  {Name: "opa_eval_ctx_set_data", Params: i32(2), Optional: true},
	contextEval:     {Name: "eval", Params: i32(1), Results: i32(1), Optional: true},
	contextResult:   {Name: "opa_eval_ctx_get_result", Params: i32(1), Results: i32(1), Optional: true},
	jsonDump:        {Name: "opa_json_dump", Params: i32(1), Results: i32(1), Optional: true},
	valueAddPath:    {Name: "opa_value_add_path", Params: i32(3), Results: i32(1), Optional: true},
	valueRemovePath: {Name: "opa_value_remove_path", Params: i32(2), Results: i32(1), Optional: true},
	valueFree:       {Name: "opa_value_free", Params: i32(1), Optional: true},
	blocksStash:     {Name: "opa_heap_blocks_stash", Optional: true},
	blocksRestore:   {Name: "opa_heap_blocks_restore", Optional: true},
	stashClear:      {Name: "opa_heap_stash_clear", Optional: true},
}

// bind returns the dialect of the plugin.
func (cfg *config) bind() *dialect.Binding {
	return &dialect.Binding{
		Host: host.Dialect{
			Inspect:      func(module []byte) (any, error) { return lookups(module) },
			Exports:      exports,
			Imports:      cfg.imports(),
			Start:        []string{"_initialize"},
			DefineMemory: true,
		},
		Mutating: true,
		Raw:      true,
		Volatile: len(cfg.ContextAwareResources) != 0,
		Check:    cfg.check,
		Ask:      cfg.ask,
	}
}

// check prepares an instance, and returns the reason that the policy is not loaded.
func (cfg *config) check(ctx context.Context, inst host.DialectInstance) error {
	if len(cfg.settings) != 0 && json.Value(cfg.settings).Kind() != json.KindObject {
		return fmt.Errorf("settings are %s, want object", json.Value(cfg.settings).Kind())
	}
	return inst.Do(ctx, "builtins", func() error {
		r, err := cfg.rulesetOf(inst)
		if err != nil {
			return err
		}
		return cfg.checkLookups(r, inst.Module())
	})
}

// ask asks the policy for its verdict.
func (cfg *config) ask(ctx context.Context, inst host.DialectInstance, req *dialect.Request) (v dialect.Verdict, err error) {
	if cfg.inventory != nil {
		err = cfg.fill(ctx, inst)
	}
	if err == nil {
		err = inst.Do(ctx, "opa_eval", func() error {
			r, err := cfg.rulesetOf(inst)
			if err == nil {
				v, err = r.ask(inst, cfg.settings, req)
			}
			return err
		})
	}
	if err != nil {
		if trap := (*host.TrapError)(nil); !errors.As(err, &trap) {
			err = fmt.Errorf("plugin %q: %w", inst.Plugin().Name(), err)
		}
		return dialect.Verdict{}, err
	}
	return v, nil
}

// ruleset is the state of an instance after its first call.
type ruleset struct {
	gatekeeper bool
	// older reports whether the module has no opa_eval.
	older bool
	// data is the address of the settings and the objects, and heap the address after them.
	data, heap uint32
	objects    objectData
	builtins   map[uint32]builtin
	// calling is set while the arguments of a builtin are read.
	calling bool
	// clock reports whether the policy has the grant for the time; evaluation is the current one.
	clock      bool
	evaluation evaluation
}

// rulesetOf prepares an instance on its first call: it passes the settings as data, and reads the
// required builtins.
func (cfg *config) rulesetOf(inst host.DialectInstance) (*ruleset, error) {
	gatekeeper, grants, settings := cfg.Gatekeeper, cfg.grants, cfg.settings
	c := dialect.CallOf(inst.Instance)
	if p, ok := c.Own.(*ruleset); ok {
		return p, nil
	}
	older := inst.Module().Export("opa_eval") == ""
	if older {
		for _, name := range olderExports {
			if inst.Module().Export(name) == "" {
				return nil, fmt.Errorf("the module exports neither opa_eval nor %s: it is of no ABI that this host knows", name)
			}
		}
	}
	names, err := numbers(cString(inst, dump(inst, uint32(inst.Invoke(builtinNames)))))
	if err != nil {
		return nil, fmt.Errorf("builtins: %w", err)
	}
	entrypoints, err := numbers(cString(inst, dump(inst, uint32(inst.Invoke(entrypointNames)))))
	if err != nil {
		return nil, fmt.Errorf("entrypoints: %w", err)
	}
	p := &ruleset{clock: slices.Contains(grants, host.GrantClock), gatekeeper: gatekeeper, older: older, builtins: map[uint32]builtin{}}
	// Kubewarden's tools record the kind of policy in the module's metadata.
	metadata, err := policymeta.Of(inst.Module())
	if err != nil {
		return nil, err
	}
	if metadata.ExecutionMode == "gatekeeper" {
		p.gatekeeper = true
	}
	for name, n := range entrypoints {
		if n == 0 && path.Base(name) == "violation" {
			p.gatekeeper = true
		}
	}
	var missing, ungranted []string
	for name, n := range names {
		f, ok := builtins[name]
		if !ok {
			missing = append(missing, name)
			continue
		}
		if grant := grantOf[name]; grant != "" && !slices.Contains(grants, grant) {
			ungranted = append(ungranted, fmt.Sprintf("%s, by the grant %q", name, grant))
		}
		p.builtins[n] = f
	}
	if len(missing) != 0 {
		return nil, fmt.Errorf("the policy needs builtins that this host does not have: %.1000s", strings.Join(sorted(missing), ", "))
	}
	if len(ungranted) != 0 {
		return nil, fmt.Errorf("the policy needs builtins that grants of its configuration must allow: %.1000s", strings.Join(sorted(ungranted), "; "))
	}
	if cfg.inventory != nil {
		// fill sets data.
		p.heap = uint32(inst.Invoke(heapGet))
		c.Own = p
		return p, nil
	}
	data := settings
	if len(data) == 0 || p.gatekeeper {
		data = []byte("{}")
	}
	p.data = uint32(inst.Invoke(jsonParse, uint64(put(inst, data)), uint64(len(data))))
	if p.data == 0 {
		return nil, errors.New("the policy does not take the settings")
	}
	p.heap = uint32(inst.Invoke(heapGet))
	c.Own = p
	return p, nil
}

// checkLookups refuses a policy that looks up objects of the cluster without having any in data. It
// would find nothing, and decide on that.
func (cfg *config) checkLookups(r *ruleset, m *host.Module) error {
	settings := cfg.settings
	if err := policymeta.CheckKinds(m, cfg.sees, cfg.cluster); err != nil {
		return err
	}
	own := kubernetes
	if r.gatekeeper {
		own = inventory
	}
	names, _ := m.Inspected().([]string)
	for _, name := range names {
		switch {
		case name == own && cfg.inventory != nil:
		case name == own && !r.gatekeeper && has(settings, name):
		case name == own:
			return fmt.Errorf("the policy looks objects of the cluster up in data.%s, and contextAwareResources of its configuration name no kinds of them", name)
		case r.gatekeeper || !has(settings, name):
			return fmt.Errorf("the policy looks objects of the cluster up in data.%s, which this host does not fill for it: want data.%s", name, own)
		}
	}
	if cfg.inventory != nil && !r.gatekeeper && has(settings, own) {
		return fmt.Errorf("settings have %s, which the objects of contextAwareResources take", own)
	}
	return nil
}

// has reports whether settings has a member with the name.
func has(settings []byte, name string) bool {
	for s := json.Object(settings); s.Next(); {
		if s.Key() == name {
			return true
		}
	}
	return false
}

// olderExports are the exports of a module without opa_eval.
var olderExports = []string{"opa_eval_ctx_new", "opa_eval_ctx_set_input", "opa_eval_ctx_set_data", "eval", "opa_eval_ctx_get_result", "opa_json_dump"}

// dump writes a value of the policy as text and returns its address.
func dump(inst host.DialectInstance, value uint32) uint32 {
	return uint32(inst.Invoke(valueDump, uint64(value)))
}

// maxNumbersBytes bounds the list of a policy's builtins or entrypoints: the list of all builtins
// has 6 KB.
const maxNumbersBytes = 256 << 10

// numbers reads {"name": number}.
func numbers(text string) (map[string]uint32, error) {
	if len(text) > maxNumbersBytes {
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), maxNumbersBytes)
	}
	var m map[string]uint32
	return m, stdjson.Unmarshal([]byte(text), &m)
}

// put copies data into new memory of the policy.
func put(inst host.DialectInstance, data []byte) uint32 {
	ptr := uint32(inst.Invoke(malloc, uint64(len(data))))
	if err := inst.Put(ptr, data); err != nil {
		inst.Abort(err)
	}
	return ptr
}

// cString returns a copy of the text at ptr, which is NUL-terminated.
func cString(inst host.DialectInstance, ptr uint32) string { return string(inst.Text(ptr)) }

// answer returns a copy of the text at ptr for a verdict: values that package json reads from it
// share its memory, and outlive the call.
func answer(inst host.DialectInstance, ptr uint32) json.Value { return bytes.Clone(inst.Text(ptr)) }

// ask evaluates the first entrypoint.
func (r *ruleset) ask(inst host.DialectInstance, settings []byte, req *dialect.Request) (dialect.Verdict, error) {
	if req.Raw != nil && r.gatekeeper {
		return dialect.Verdict{}, errors.New("a policy for Gatekeeper takes no raw requests")
	}
	if r.gatekeeper && req.Operation == admissionv1.Delete && req.OldObject.Raw == nil {
		// Gatekeeper returns an error as well: without an object there would be no violation.
		return dialect.Verdict{}, errors.New("the request to delete an object does not have it: want oldObject")
	}
	r.evaluation = evaluation{clock: r.clock}
	input := r.input(settings, req)
	if r.older {
		return r.askInSteps(inst, req, input)
	}
	addr := r.heap
	if inst.Put(addr, input) != nil {
		// Only the policy can grow its memory.
		inst.Invoke(heapSet, uint64(r.heap))
		addr = put(inst, input)
	}
	result := uint32(inst.Invoke(eval, 0, 0, uint64(r.data), uint64(addr), uint64(len(input)), uint64((addr+uint32(len(input))+7)&^7), formatJSON))
	return r.verdict(req, answer(inst, result))
}

// askInSteps is ask for a module without opa_eval.
func (r *ruleset) askInSteps(inst host.DialectInstance, req *dialect.Request, input []byte) (dialect.Verdict, error) {
	inst.Invoke(heapSet, uint64(r.heap))
	value := inst.Invoke(jsonParse, uint64(put(inst, input)), uint64(len(input)))
	if value == 0 {
		return dialect.Verdict{}, errors.New("the policy does not take the request")
	}
	evaluation := inst.Invoke(contextNew)
	inst.Invoke(contextSetInput, evaluation, value)
	inst.Invoke(contextSetData, evaluation, uint64(r.data))
	if code := inst.Invoke(contextEval, evaluation); code != 0 {
		return dialect.Verdict{}, fmt.Errorf("eval returned %d", int32(uint32(code)))
	}
	return r.verdict(req, answer(inst, uint32(inst.Invoke(jsonDump, inst.Invoke(contextResult, evaluation)))))
}

func (r *ruleset) input(settings []byte, req *dialect.Request) []byte {
	if r.gatekeeper {
		return gatekeeperInput(settings, req)
	}
	body := req.JSON()
	return req.Body("admission review", func() []byte {
		o := policyjson.NewObject(make([]byte, 0, len(body)+80))
		o.Text("apiVersion", "admission.k8s.io/v1")
		o.Text("kind", "AdmissionReview")
		o.Raw("request", body)
		return o.End()
	})
}

// gatekeeperInput returns the input of a policy as in Gatekeeper. For a deletion, the object is
// both the old object and the one under review (github.com/open-policy-agent/gatekeeper,
// pkg/webhook/policy.go).
func gatekeeperInput(settings []byte, req *dialect.Request) []byte {
	body := req.Body("gatekeeper review", func() []byte {
		r := *req.AdmissionRequest
		if r.Operation == admissionv1.Delete {
			r.Object = r.OldObject
		}
		return policyjson.AppendRequest(nil, &r)
	})
	if len(settings) == 0 {
		settings = []byte("{}")
	}
	o := policyjson.NewObject(make([]byte, 0, len(body)+len(settings)+32))
	o.Raw("parameters", settings)
	o.Raw("review", body)
	return o.End()
}

// verdict reads the result set [{"result": …}]. The verdict shares memory with set, which the
// caller owns.
func (r *ruleset) verdict(req *dialect.Request, set json.Value) (dialect.Verdict, error) {
	var results []struct {
		Result stdjson.RawMessage `json:"result"`
	}
	// Builtins may produce strings that are not UTF-8. OPA writes them in the same way.
	if err := policyjson.Decode(bytes.ToValidUTF8(set, []byte("\uFFFD")), &results); err != nil {
		return dialect.Verdict{}, fmt.Errorf("read the policy's decision: %w", err)
	}
	var result json.Value
	if len(results) != 0 {
		result = json.Value(results[0].Result)
	}
	switch kind := result.Kind(); {
	case len(results) > 1:
		return dialect.Verdict{}, fmt.Errorf("the policy has %d decisions, want one", len(results))
	case kind == json.KindNone && r.gatekeeper:
		return dialect.Verdict{Allowed: true}, nil // There is no violation.
	case kind == json.KindNone:
		return dialect.Verdict{}, errors.New("the policy's decision is undefined")
	case kind == json.KindArray:
		return violations(result)
	case r.gatekeeper && kind == json.KindObject:
		return violationKeys(result)
	case r.gatekeeper:
		return dialect.Verdict{}, fmt.Errorf("the policy's decision is %s, want violations", kind)
	case kind == json.KindBool:
		allowed, _ := result.Bool()
		return dialect.Verdict{Allowed: allowed}, nil
	case kind == json.KindObject:
		return response(req, result)
	default:
		return dialect.Verdict{}, fmt.Errorf("the policy's decision is %s, want an AdmissionReview, a list of violations or a bool", kind)
	}
}

// violations reads a list of messages: strings, or objects with msg.
func violations(list json.Value) (dialect.Verdict, error) {
	var messages []string
	for e := json.Array(list); e.Next(); {
		message, ok := e.Value().Text()
		if !ok {
			var err error
			if message, err = violation(e.Value()); err != nil {
				return dialect.Verdict{}, err
			}
		}
		messages = append(messages, message)
	}
	return denial(messages), nil
}

// violation reads the message of an object with msg.
func violation(object json.Value) (string, error) {
	var v struct {
		Msg policyjson.Field[policyjson.Text] `json:"msg"`
	}
	err := policyjson.Decode(object, &v)
	if err == nil && !v.Msg.Present {
		err = errors.New("there is none")
	}
	if err != nil {
		return "", fmt.Errorf("read msg of the violation %.100s: %w", []byte(object), err)
	}
	return string(v.Msg.Value), nil
}

// violationKeys reads violations from the keys of an object, the result of "violation[{"msg": msg}]
// if" in Rego 1. As in Gatekeeper, a key whose value is false does not count.
func violationKeys(object json.Value) (dialect.Verdict, error) {
	var messages []string
	for m := json.Object(object); m.Next(); {
		if value, ok := m.Value().Bool(); ok && !value {
			continue
		}
		message, err := violation(json.Value(m.Key()))
		if err != nil {
			return dialect.Verdict{}, err
		}
		messages = append(messages, message)
	}
	return denial(messages), nil
}

// denial denies with the messages, and allows without messages.
func denial(messages []string) dialect.Verdict {
	return dialect.Verdict{Allowed: len(messages) == 0, Message: strings.Join(messages, ", ")}
}

// response reads the response of an AdmissionReview.
func response(req *dialect.Request, review json.Value) (dialect.Verdict, error) {
	var r struct {
		Response *struct {
			UID     *policyjson.Text       `json:"uid"`
			Allowed policyjson.Field[bool] `json:"allowed"`
			Status  struct {
				Message policyjson.Text `json:"message"`
				Reason  policyjson.Text `json:"reason"`
				Code    uint16          `json:"code"`
			} `json:"status"`
			PatchType        string             `json:"patchType"`
			Patch            string             `json:"patch"`
			Warnings         []policyjson.Text  `json:"warnings"`
			AuditAnnotations policyjson.TextMap `json:"auditAnnotations"`
		} `json:"response"`
	}
	if err := policyjson.Decode(review, &r); err != nil {
		return dialect.Verdict{}, fmt.Errorf("read the policy's decision: %w", err)
	}
	switch {
	case r.Response == nil || !r.Response.Allowed.Present:
		return dialect.Verdict{}, errors.New("the policy's decision has no response.allowed")
	case r.Response.UID != nil && string(*r.Response.UID) != string(req.UID):
		return dialect.Verdict{}, fmt.Errorf("the policy's decision is about the request %.100q, want %q", *r.Response.UID, req.UID)
	case (r.Response.Patch != "" || r.Response.PatchType != "") && r.Response.PatchType != patchType:
		return dialect.Verdict{}, fmt.Errorf("the policy's patch has the patchType %.100q, want %q", r.Response.PatchType, patchType)
	}
	v := dialect.Verdict{Allowed: r.Response.Allowed.Value}
	result := &admissionmsg.Result{Warnings: policyjson.Texts(r.Response.Warnings), AuditAnnotations: r.Response.AuditAnnotations}
	if !v.Allowed {
		v.Message, v.Code, result.Reason = string(r.Response.Status.Message), uint32(r.Response.Status.Code), string(r.Response.Status.Reason)
	} else if r.Response.Patch != "" {
		patch, err := base64.StdEncoding.DecodeString(r.Response.Patch)
		if err != nil {
			return dialect.Verdict{}, fmt.Errorf("read the policy's patch: %w", err)
		}
		v.Patch = patch
	}
	if result.Reason != "" || len(result.Warnings) != 0 || len(result.AuditAnnotations) != 0 {
		v.Result = result
	}
	return v, nil
}

// patchType is the only existing type of a patch.
const patchType = string(admissionv1.PatchTypeJSONPatch)

// callBuiltin calls a builtin with the addresses of its arguments, and returns the
// address of its result, 0 if it is undefined.
func callBuiltin(inst host.DialectInstance, id uint32, args []uint64) uint32 {
	p, ok := dialect.CallOf(inst.Instance).Own.(*ruleset)
	if !ok {
		inst.Abort(errors.New("builtin before the policy was asked for its builtins"))
	}
	f, ok := p.builtins[id]
	if !ok {
		inst.Abort(fmt.Errorf("there is no builtin %d", id))
	}
	if p.calling {
		inst.Abort(fmt.Errorf("builtin %d is called by what writes the arguments of another", id))
	}
	p.calling = true
	c := &call{spend: inst.Spend, limit: inst.Limits().ResultBytes, evaluation: &p.evaluation}
	values, length := make([]any, len(args)), 0
	for i, arg := range args {
		text := cString(inst, dump(inst, uint32(arg)))
		if length += len(text); length > c.limit {
			inst.Abort(fmt.Errorf("the arguments of builtin %d have more than %d bytes", id, c.limit))
		}
		value, err := parseValue(c, text)
		if err != nil {
			inst.Abort(fmt.Errorf("argument %d of builtin %d: %w", i, id, err))
		}
		values[i] = value
	}
	p.calling = false
	c.work(length * byteWork)
	result, err := f(c, values)
	if errors.Is(err, errTooMuch) || errors.Is(err, errUngranted) || errors.Is(err, errElsewhere) || errors.Is(err, errFault) {
		inst.Abort(fmt.Errorf("builtin %d: %w", id, err))
	}
	if err != nil {
		return 0 // As in OPA, an error in a builtin makes the expression undefined.
	}
	text, err := encodeValue(result, c.limit)
	if err != nil {
		inst.Abort(fmt.Errorf("the result of builtin %d: %w", id, err))
	}
	c.work(len(text) * byteWork)
	return uint32(inst.Invoke(valueParse, uint64(put(inst, text)), uint64(len(text))))
}
