package shadow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// Candidate is a plugin that is called in the background.
type Candidate interface {
	// Guest returns its module.
	Guest() *host.Plugin
	// Close frees it.
	Close(ctx context.Context) error
}

// Options are the additions of an adapter to a [Config].
type Options struct {
	// Plugin is the name of the serving plugin, and Serving its module.
	Plugin  string
	Serving *host.Plugin
	Runtime *host.Runtime
	// Load makes the candidate in rt. It calls change with the configuration of the serving
	// version before that is used.
	Load func(ctx context.Context, rt *host.Runtime, change func(cfg *host.Config)) (Candidate, error)
	// Promote has the candidate serve; nil is a swap of Serving.
	Promote func(ctx context.Context, p *Promotion) error
	// NotRepeated are the functions of Serving whose calls cannot be repeated, sorted.
	NotRepeated []string
	Logger      *slog.Logger
	Observer    host.Observer
}

// Promotion is a candidate that is about to serve.
type Promotion struct {
	// Shadow is the shadow of the candidate.
	Shadow *Shadow
	// Source is that of the module, SHA256 its digest, and GuestConfig its configuration, empty if
	// that is the one of the serving version.
	Source      host.Source
	SHA256      string
	GuestConfig host.GuestConfig
}

// Claim ends the shadow as promoted. The code that has a candidate serve calls it when nothing else
// can fail, in the same step: a shadow that has ended meanwhile is not promoted, and after Claim it
// cannot be ended otherwise. The error is the reason why it has ended.
func (p *Promotion) Claim() error {
	s := p.Shadow
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.promotable(); err != nil {
		return err
	}
	s.status.State = Promoted
	return nil
}

// promotable returns the reason why the candidate cannot be promoted, nil if it can. s.mu is held.
func (s *Shadow) promotable() error {
	switch state := s.status.State; {
	case s.profiler != nil:
		return errors.New("it profiles the serving version")
	case state == Stopped:
		return fmt.Errorf("it is stopped: %s", s.status.Reason)
	case state != Running && state != Resting:
		return fmt.Errorf("it is %s", state)
	}
	return nil
}

// Outcome is the result of a call on the candidate. It is logged and kept, so nothing in it may be
// confidential beyond the values that Stain masks.
type Outcome struct {
	// Serving and Candidate are the kinds of both answers, "allow" or "deny" for example. They, or
	// Detail, describe the difference of the answers; without a difference all are empty.
	Serving, Candidate string
	// Subject is the subject of the call: an operation on an object, by its name.
	Subject string
	// Detail is an example of the difference: both answers.
	Detail string
	// Asked is a question of the candidate that the serving version did not ask, so that there is
	// no answer to it. A question that the candidate can do without does not count.
	Asked string
	// Err is the failure of the candidate, unless the serving version failed as well.
	Err error
	// Uncompared is set if there was nothing to compare: both versions have failed, with different
	// words as two versions do, or nothing of the call can be repeated.
	Uncompared bool
	// Stain holds the confidential values that the call has seen: Detail, Asked and Err may repeat
	// them. nil holds none.
	Stain *confidential.Stain
}

// text returns a text of the guests in a form that may outlive the call.
func (o *Outcome) text(text string) string {
	if o.Stain == nil {
		return text
	}
	return o.Stain.Text(text)
}

// join joins the texts that are not empty.
func join(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), ": ")
}

// Call repeats a call of the serving version on the candidate, and compares the answers. It is
// called on the goroutine of the shadow.
type Call func(ctx context.Context, c Candidate) Outcome

// State is the state of a shadow.
type State string

// The states.
const (
	Loading  State = "loading"
	Running  State = "running"
	Resting  State = "resting" // The machine is busy.
	Stopped  State = "stopped"
	Promoted State = "promoted"
)

// Status holds the results of a shadow.
type Status struct {
	State State `json:"state"`
	// Reason is why it is stopped.
	Reason string `json:"reason,omitempty"`
	// Digest is the SHA-256 of the candidate's module, in hexadecimal, once it is loaded.
	Digest string    `json:"digest,omitempty"`
	Since  time.Time `json:"since"`
	// Compared is the number of calls with two answers. Same is the number of those that agreed.
	// Asked counts calls in which the candidate asked questions that the serving version did not
	// ask. Failed counts calls on which the candidate alone failed, and Dropped those without room.
	Compared uint64 `json:"compared"`
	Same     uint64 `json:"same"`
	Asked    uint64 `json:"asked"`
	Failed   uint64 `json:"failed"`
	Dropped  uint64 `json:"dropped"`
	// Uncompared is the number of calls in which there was nothing to compare.
	Uncompared uint64 `json:"uncompared,omitempty"`
	// NotRepeated are the functions of the plugin whose calls cannot be repeated: the behavior of
	// the candidate in them is not known.
	NotRepeated []string `json:"notRepeated,omitempty"`
	// Serving is the digest of the serving version to which everything is compared. When it is
	// swapped, the numbers begin anew.
	Serving string `json:"serving,omitempty"`
	// Held is the number of bytes kept by calls that wait, or are being repeated.
	Held int64 `json:"held,omitempty"`
	// Groups are the differences, those with the most calls first.
	Groups []Group `json:"groups,omitempty"`
}

// Group is the differences of one kind.
type Group struct {
	// Change is the kinds of both answers: "allow -> deny".
	Change   string   `json:"change"`
	Calls    uint64   `json:"calls"`
	Examples []string `json:"examples,omitempty"`
}

// Shadow repeats calls on a candidate. It is safe for use by several goroutines. A nil Shadow
// samples nothing.
type Shadow struct {
	cfg   Config
	opts  Options
	queue chan offered
	// held is the number of bytes kept by calls that wait or are being made. over is set once no
	// more are taken from the queue.
	held     atomic.Int64
	over     atomic.Bool
	cancel   context.CancelFunc
	done     chan struct{}
	throttle *throttle
	profiler *host.Profiler
	// threshold is the rate as a share of 2^32; 0 if nothing is sampled now.
	threshold atomic.Uint64
	dropped   atomic.Uint64

	// promoting serialises promotions.
	promoting sync.Mutex

	// label is the label of the serving version.
	label string

	mu      sync.Mutex
	status  Status
	groups  map[string]*Group
	failing int
	source  host.Source
	profile *profile.Profile
}

// maxGroups is the maximum number of groups of differences; further ones are counted together.
const maxGroups = 64

// maxExample is the maximum number of bytes kept of an example.
const maxExample = 4 << 10

// Begin begins a shadow. The candidate is loaded in the background; if that fails, the shadow is
// stopped. The error has every mistake of the configuration.
func Begin(cfg Config, opts Options) (*Shadow, error) {
	if errs := cfg.Check(opts.Runtime, "shadow"); len(errs) != 0 {
		return nil, fmt.Errorf("plugin %q: %w", opts.Plugin, errors.Join(errs...))
	}
	cfg = cfg.withDefaults()
	source, err := opts.Runtime.Source(cfg.Module, "shadow.module")
	if err != nil {
		return nil, fmt.Errorf("plugin %q: %w", opts.Plugin, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Shadow{
		cfg: cfg, opts: opts, queue: make(chan offered, cfg.Queue), cancel: cancel, done: make(chan struct{}),
		throttle: newThrottle(cfg.CPU), groups: map[string]*Group{}, source: source,
		status: Status{State: Loading, Since: time.Now(), NotRepeated: opts.NotRepeated},
	}
	if opts.Serving != nil {
		s.status.Serving, s.label = opts.Serving.Digest(), opts.Serving.Stats().Label
	}
	if cfg.profile != 0 {
		s.profiler = &host.Profiler{}
	}
	go s.run(ctx)
	return s, nil
}

// Profile begins a shadow that is a copy of the serving version with a profiler. It is stopped
// after so many calls, and then has a [Shadow.Profile]. source is that of the module.
func Profile(calls int, source host.Source, opts Options) (*Shadow, error) {
	if calls <= 0 {
		return nil, fmt.Errorf("plugin %q: profile %d calls: want more than 0", opts.Plugin, calls)
	}
	if opts.Serving.Stats().Isolation == host.IsolationProcess { // Each load would fail.
		return nil, fmt.Errorf("plugin %q: isolation is process, where no profile can be collected", opts.Plugin)
	}
	return Begin(Config{Module: host.ModuleConfig{Source: source, SHA256: opts.Serving.Digest()}, Rate: 1, Queue: min(calls, 64), profile: calls}, opts)
}

// Sampled reports whether the call that the caller is about to make, or has made, is to be
// repeated. It takes some nanoseconds.
func (s *Shadow) Sampled() bool {
	if s == nil {
		return false
	}
	threshold := s.threshold.Load()
	return threshold != 0 && uint64(rand.Uint32()) < threshold
}

// Offer hands over a call that was sampled. It does not wait: a call for which there is no room
// is dropped.
//
// bytes is the memory that the call keeps. free is called when it keeps no more, even if there is
// no room; nil is not called.
func (s *Shadow) Offer(c Call, bytes int64, free func()) {
	o := offered{c, bytes, free}
	if s.held.Add(bytes) > s.cfg.QueueBytes {
		s.forget(o)
		s.Drop()
		return
	}
	select {
	case s.queue <- o:
		if s.over.Load() {
			s.drain()
		}
	default:
		s.forget(o)
		s.Drop()
	}
}

// offered is a call that waits.
type offered struct {
	call  Call
	bytes int64
	free  func()
}

// forget frees the memory kept by a call.
func (s *Shadow) forget(o offered) {
	s.held.Add(-o.bytes)
	if o.free != nil {
		o.free()
	}
}

// drain forgets the calls that wait.
func (s *Shadow) drain() {
	for {
		select {
		case o := <-s.queue:
			s.forget(o)
		default:
			return
		}
	}
}

// Room reports whether the queue has room for a call that keeps so many bytes, for callers that
// want to avoid a needless copy. If not, the call counts as dropped.
func (s *Shadow) Room(bytes int64) bool {
	if len(s.queue) < cap(s.queue) && s.held.Load()+bytes <= s.cfg.QueueBytes {
		return true
	}
	s.Drop()
	return false
}

// Drop counts a sampled call for which there is no room.
func (s *Shadow) Drop() {
	s.dropped.Add(1)
	s.observe("dropped")
}

// Config returns the configuration with its defaults.
func (s *Shadow) Config() Config { return s.cfg }

// Status returns the results so far.
func (s *Shadow) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Dropped, status.Held = s.dropped.Load(), s.held.Load()
	for _, g := range s.groups {
		group := *g
		group.Examples = slices.Clone(g.Examples)
		status.Groups = append(status.Groups, group)
	}
	slices.SortFunc(status.Groups, func(a, b Group) int {
		if a.Calls != b.Calls {
			return int(max(-1, min(1, int64(b.Calls)-int64(a.Calls))))
		}
		return strings.Compare(a.Change, b.Change)
	})
	return status
}

// Profile returns the profile, nil until all calls were made.
func (s *Shadow) Profile() *profile.Profile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.profile
}

// Done is closed when the shadow is stopped.
func (s *Shadow) Done() <-chan struct{} { return s.done }

// Close stops the shadow, and waits until ctx ends for its running work.
func (s *Shadow) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.stop("closed")
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("plugin %q: close shadow: %w", s.opts.Plugin, ctx.Err())
	}
}

// Promote makes the candidate the serving version, as [host.Plugin.Swap] does, and ends the shadow.
// It returns an error if the shadow has ended, has not begun to compare, or the promotion fails; in
// the last case the shadow goes on. If a step after the swap fails, the error is of that step, and
// the state is Promoted.
func (s *Shadow) Promote(ctx context.Context) error {
	s.promoting.Lock()
	defer s.promoting.Unlock()
	s.mu.Lock()
	err, digest := s.promotable(), s.status.Digest
	promoted := s.status.State == Promoted
	s.mu.Unlock()
	switch {
	case promoted:
		return nil
	case err != nil:
		return fmt.Errorf("plugin %q: promote shadow: %w", s.opts.Plugin, err)
	case len(s.cfg.GuestConfig) != 0 && s.opts.Promote == nil:
		return fmt.Errorf("plugin %q: promote shadow: its guestConfig differs; change the serving version's configuration instead", s.opts.Plugin)
	}
	promote := s.opts.Promote
	if promote == nil {
		promote = func(ctx context.Context, p *Promotion) error {
			return s.opts.Serving.SwapIf(ctx, p.Source, p.SHA256, p.Claim)
		}
	}
	begun := time.Now()
	err = promote(ctx, &Promotion{Shadow: s, Source: s.source, SHA256: digest, GuestConfig: s.cfg.GuestConfig})
	s.mu.Lock()
	promoted = s.status.State == Promoted
	s.mu.Unlock()
	if promoted {
		s.threshold.Store(0)
		s.cancel()
		s.log(slog.LevelInfo, "promoted the candidate", "digest", digest, "reference", s.source.String(), "duration", time.Since(begun).Round(time.Millisecond))
	}
	if err != nil {
		return fmt.Errorf("plugin %q: promote shadow: %w", s.opts.Plugin, err)
	}
	return nil
}

// stop ends the shadow, unless it has ended.
func (s *Shadow) stop(reason string) {
	s.mu.Lock()
	ended := s.status.State == Stopped || s.status.State == Promoted
	if !ended {
		s.status.State, s.status.Reason = Stopped, reason
	}
	s.mu.Unlock()
	s.threshold.Store(0)
	s.cancel()
	if !ended {
		s.log(slog.LevelInfo, "the shadow has ended", "state", string(Stopped), "reason", reason)
	}
}

func (s *Shadow) log(level slog.Level, msg string, args ...any) {
	if l := s.opts.Logger; l != nil {
		l.Log(context.Background(), level, msg, append([]any{"plugin", s.opts.Plugin}, args...)...)
	}
}

// change makes the configuration of the serving version that of the candidate.
func (s *Shadow) change(cfg *host.Config) {
	limits := s.opts.Serving.Limits()
	cfg.Module = host.ModuleConfig{Source: s.source, SHA256: s.cfg.Module.SHA256, Compiled: s.cfg.Module.Compiled}
	if len(s.cfg.GuestConfig) != 0 {
		cfg.GuestConfig = s.cfg.GuestConfig
	}
	// The time for compiling was allowed for the serving module: the candidate gets the configured
	// limit, and more only with its own digest.
	limits.Compile = cfg.Limits.Compile
	cfg.Limits = limits
	cfg.Limits.Instances = 1
	// A call takes longer by as much as the candidate's share is smaller.
	cfg.Limits.Timeout = time.Duration(float64(limits.Timeout) / s.cfg.CPU)
	cfg.Limits.MemoryBytes = min(limits.MemoryBytes, s.cfg.MemoryBytes)
	cfg.Profiler = s.profiler
	cfg.Observer, cfg.Logger, cfg.Record, cfg.CircuitBreaker = nil, nil, nil, host.CircuitBreaker{}
}

// run loads the candidate and makes the calls.
func (s *Shadow) run(ctx context.Context) {
	defer close(s.done)
	defer func() {
		s.over.Store(true)
		s.drain()
	}()
	rt := s.opts.Runtime.Beside(s.cfg.MemoryBytes)
	defer func() {
		err := rt.Close(context.WithoutCancel(ctx))
		if n := rt.MemoryInUse(); err == nil && n != 0 {
			err = fmt.Errorf("instances of the candidate still have %d bytes", n)
		}
		if err != nil {
			s.log(slog.LevelError, "close shadow", "err", err)
		}
	}()
	candidate, err := s.opts.Load(loading.With(ctx, loading.Settings{Throttle: s.throttle, Account: loading.AccountOf(s.opts.Observer, s.opts.Plugin)}), rt, s.change)
	if err != nil {
		s.log(slog.LevelError, "the shadow cannot be loaded", "err", err)
		s.stop("load: " + err.Error())
		return
	}
	defer func() {
		if err := candidate.Close(context.WithoutCancel(ctx)); err != nil {
			s.log(slog.LevelError, "close shadow", "err", err)
		}
	}()
	if s.profiler != nil {
		s.profiler.Reset()
	}
	s.mu.Lock()
	s.status.Digest = candidate.Guest().Digest()
	s.mu.Unlock()
	// Its compilation has taken more than its share.
	if err := s.throttle.Sleep(ctx, 0); err != nil {
		return
	}
	s.mu.Lock()
	if s.status.State == Loading {
		s.status.State = Running // From here on, each call may be sampled.
		s.threshold.Store(s.sampled())
	}
	s.mu.Unlock()
	for n := 1; ; n++ {
		o, ok := s.next(ctx)
		if !ok {
			return
		}
		s.throttle.Begin()
		outcome := s.call(ctx, candidate, o.call)
		s.forget(o)
		if ctx.Err() != nil {
			return
		}
		if s.renewed() {
			continue
		}
		s.take(outcome)
		if n == s.cfg.profile {
			s.finish()
			return
		}
		if err := s.throttle.Rest(ctx); err != nil {
			return
		}
		s.rest(ctx)
	}
}

// pollTime is the time that a shadow without calls sleeps. No caller wakes it, which would cost the
// caller as much as the rest of handing over a call, and often its processor.
const pollTime = 50 * time.Millisecond

// renewed reports whether the serving version was swapped since the last check, for a version other
// than the candidate. Then the calls that wait, and the numbers, concern a version that is gone.
func (s *Shadow) renewed() bool {
	serving := s.opts.Serving.Digest()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.profiler != nil || s.status.State == Promoted || s.status.Serving == serving {
		return false
	}
	s.drain()
	s.status = Status{State: s.status.State, Digest: s.status.Digest, Since: time.Now(), NotRepeated: s.status.NotRepeated, Serving: serving}
	s.groups, s.failing = map[string]*Group{}, 0
	s.dropped.Store(0)
	return true
}

// next returns the next call; ok is false when ctx ends.
func (s *Shadow) next(ctx context.Context) (o offered, ok bool) {
	for ctx.Err() == nil {
		select {
		case o := <-s.queue:
			return o, true
		default:
			_ = s.throttle.Sleep(ctx, pollTime) // The loop ends with ctx.
		}
	}
	return offered{}, false
}

// sleep sleeps, at most until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// sample lets callers sample.
func (s *Shadow) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.State == Running {
		s.threshold.Store(s.sampled())
	}
}

// sampled returns the threshold below which a random number samples a call.
func (s *Shadow) sampled() uint64 { return uint64(s.cfg.Rate * (1 << 32)) }

// call makes a call. A fault of this process's own code must not end it.
func (s *Shadow) call(ctx context.Context, candidate Candidate, call Call) (o Outcome) {
	defer func() {
		if r := recover(); r != nil {
			o = Outcome{Err: fmt.Errorf("host panicked: %v", r), Stain: sealed()}
		}
	}()
	return call(ctx, candidate)
}

// sealed is the stain of a call of which nothing is known.
func sealed() *confidential.Stain {
	s := new(confidential.Stain)
	s.Seal()
	return s
}

// observe reports the result of a call to the Observer, if that implements the method.
func (s *Shadow) observe(result string) {
	if o, ok := s.opts.Observer.(loading.ShadowObserver); ok {
		o.Shadowed(s.label, result)
	}
}

// take counts the outcome of a call.
func (s *Shadow) take(o Outcome) {
	result := "same"
	change := o.Serving + " -> " + o.Candidate
	s.mu.Lock()
	switch {
	case o.Uncompared:
		s.status.Uncompared++
		s.mu.Unlock()
		return
	case o.Asked != "":
		result = "asked"
		s.status.Asked++
		s.failing = 0
		change, o.Detail = o.Serving+" -> asked different questions", join(o.Detail, o.Asked)
	case o.Err != nil:
		result = "failed"
		s.status.Failed++
		s.failing++
		change, o.Detail = o.Serving+" -> failure", join(o.Detail, o.Err.Error())
	case o.Serving != o.Candidate || o.Detail != "":
		result = "different"
		s.status.Compared++
		s.failing = 0
	default:
		s.status.Compared++
		s.status.Same++
		s.failing = 0
	}
	logged := false
	if result != "same" {
		g := s.groups[change]
		if g == nil && len(s.groups) >= maxGroups {
			change = "others"
			g = s.groups[change]
		}
		if g == nil {
			g = &Group{Change: change}
			s.groups[change] = g
		}
		g.Calls++
		if len(g.Examples) < s.cfg.Examples {
			o.Detail = cut.Text(join(o.Subject, o.text(o.Detail)), maxExample)
			g.Examples = append(g.Examples, o.Detail)
			logged = true
		}
	}
	failing := s.failing
	s.mu.Unlock()

	s.observe(result)
	if logged {
		s.log(slog.LevelWarn, "the shadow differs", "change", change, "example", o.Detail)
	}
	if failing >= s.cfg.Failures && s.profiler == nil {
		s.stop(fmt.Sprintf("%d calls in a row have failed, the last: %s", failing, o.text(o.Err.Error())))
	}
}

// finish ends a profile.
func (s *Shadow) finish() {
	p := s.profiler.Profile()
	p.Plugin = s.opts.Plugin
	s.mu.Lock()
	s.profile = p
	s.mu.Unlock()
	s.stop("all calls are profiled")
}

const (
	// busyAfter is the delay of a sleep from which the machine counts as busy.
	busyAfter = 20 * time.Millisecond
	// restTime is the time that a shadow rests then.
	restTime = 2 * time.Second
)

// rest waits while the machine is busy: others have the processors for long, or callers wait
// for the serving version.
func (s *Shadow) rest(ctx context.Context) {
	if s.throttle.Late() < busyAfter && s.opts.Serving.Stats().Waiting == 0 {
		return
	}
	s.state(Running, Resting)
	s.threshold.Store(0)
	sleep(ctx, restTime)
	s.state(Resting, Running)
	s.sample()
}

// state changes one state into another.
func (s *Shadow) state(from, to State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.State == from {
		s.status.State = to
	}
}
