package host_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/host"
)

// memory is a source in memory, whose content is "error: …" if it cannot be
// fetched.
type memory struct {
	mu      sync.Mutex
	content string
	fetches int
}

func (m *memory) set(content string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.content = content
}

func (m *memory) Fetch(context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetches++
	if text, ok := strings.CutPrefix(m.content, "error: "); ok {
		return nil, errors.New(text)
	}
	return []byte(m.content), nil
}

// fetched returns the number of fetches.
func (m *memory) fetched() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fetches
}

func (m *memory) String() string { return "memory" }

// watched is a memory that can be watched.
type watched struct {
	memory
	watch func(ctx context.Context, changed func()) error
}

func (w *watched) Watch(ctx context.Context, changed func()) error { return w.watch(ctx, changed) }

// followed is what Follow did.
type followed struct {
	mu     sync.Mutex
	events []string
	ended  chan error
}

func (f *followed) tell(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
}

// follow runs Follow in the bubble of the test. Modules that begin with "bad"
// are refused.
func follow(ctx context.Context, source host.Source, opts host.FollowOptions) *followed {
	f := &followed{ended: make(chan error, 1)}
	opts.Failed = func(err error) { f.tell(err.Error()) }
	go func() {
		f.ended <- host.Follow(ctx, source, opts, func(_ context.Context, module []byte, sha256 string) error {
			if want := digest(module); sha256 != want {
				return fmt.Errorf("digest is %s, want %s", sha256, want)
			}
			if strings.HasPrefix(string(module), "bad") {
				return fmt.Errorf("refused %s", module)
			}
			f.tell("applied " + string(module))
			return nil
		})
	}()
	return f
}

// check compares what has happened since the last check, once all is quiet, in
// any order.
func (f *followed) check(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.events) // A watch and a look run side by side.
	if diff := cmp.Diff(want, f.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	f.events = nil
}

// end ends the following; a goroutine that is left fails the test.
func (f *followed) end(t *testing.T, cancel func()) {
	t.Helper()
	cancel()
	if err := <-f.ended; err != nil {
		t.Error(err)
	}
	f.check(t)
}

// TestFollowPolls holds what is applied of a source that cannot be watched. The
// clock is that of the bubble.
func TestFollowPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := &memory{content: "error: not there"}
		f := follow(ctx, source, host.FollowOptions{})
		steps := []struct {
			content string
			want    []string
		}{
			{"error: not there", []string{"fetch module of memory: not there"}},
			{"one", []string{"applied one"}},
			{"one", nil},
			{"bad", []string{"refused bad"}},
			{"bad", nil},
			{"one", nil}, // It is still the applied one.
			{"bad", nil},
			{"bad too", []string{"refused bad too"}},
			{"bad", []string{"refused bad"}},
			{"error: gone", []string{"fetch module of memory: gone"}},
			{"one", nil},
			{"two", []string{"applied two"}},
			{"one", []string{"applied one"}},
		}
		// The first look is at once, the next each at an interval.
		for i, step := range steps {
			source.set(step.content)
			if i > 0 {
				f.check(t)
				time.Sleep(host.DefaultFollowInterval - time.Nanosecond)
				f.check(t)
				time.Sleep(time.Nanosecond)
			}
			f.check(t, step.want...)
		}
		if source.fetched() != len(steps) {
			t.Errorf("%d fetches, want %d", source.fetched(), len(steps))
		}
		f.end(t, cancel)
	})
}

func TestFollowSkipsWhatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := &memory{content: "one"}
		f := follow(ctx, source, host.FollowOptions{Applied: digest([]byte("one")), Interval: time.Hour})
		f.check(t)
		source.set("two")
		time.Sleep(time.Hour)
		f.check(t, "applied two")
		f.end(t, cancel)
	})
}

func TestFollowHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hints := make(chan string)
		source := &watched{memory: memory{content: "one"}}
		source.watch = func(ctx context.Context, changed func()) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case content := <-hints:
					source.set(content)
					changed()
				}
			}
		}
		f := follow(ctx, source, host.FollowOptions{Interval: 24 * time.Hour})
		f.check(t, "applied one")
		hints <- "two"
		f.check(t, "applied two")
		hints <- "two"
		f.check(t)
		hints <- "bad"
		f.check(t, "refused bad")
		f.end(t, cancel)
	})
}

// TestFollowLosesNoChange holds that a change before the watch has begun, and one
// while apply runs, is looked at.
func TestFollowLosesNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin, hint := make(chan struct{}), make(chan struct{})
		source := &watched{memory: memory{content: "one"}}
		source.watch = func(ctx context.Context, changed func()) error {
			<-begin
			changed()
			<-hint
			changed()
			<-ctx.Done()
			return nil
		}
		applying, goOn := make(chan string), make(chan struct{})
		ended := make(chan error)
		go func() {
			ended <- host.Follow(ctx, source, host.FollowOptions{Interval: 24 * time.Hour}, func(_ context.Context, module []byte, _ string) error {
				applying <- string(module)
				<-goOn
				return nil
			})
		}()
		var got []string
		got = append(got, <-applying)
		goOn <- struct{}{}
		synctest.Wait()
		source.set("two") // Nobody watches yet.
		close(begin)
		got = append(got, <-applying)
		source.set("three")
		close(hint)
		synctest.Wait()
		goOn <- struct{}{}
		got = append(got, <-applying)
		goOn <- struct{}{}
		if diff := cmp.Diff([]string{"one", "two", "three"}, got); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestFollowWatchesAgain holds that a watch that fails is told of, replaced by
// looks at an interval, and begun anew with them.
func TestFollowWatchesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := 0
		source := &watched{memory: memory{content: "one"}}
		source.watch = func(ctx context.Context, changed func()) error {
			switch begun++; begun {
			case 1:
				return errors.New("too many watches")
			case 2:
				return nil
			}
			changed()
			<-ctx.Done()
			return ctx.Err()
		}
		f := follow(ctx, source, host.FollowOptions{Interval: time.Minute})
		f.check(t, "applied one", "watch memory: too many watches")
		source.set("two")
		time.Sleep(time.Minute)
		f.check(t, "applied two", "watch memory: ended without an error")
		time.Sleep(time.Hour)
		f.check(t)
		if begun != 3 {
			t.Errorf("the watch began %d times, want 3", begun)
		}
		f.end(t, cancel)
	})
}

// blocking is a source whose Fetch waits for the end of its context.
type blocking struct{}

func (blocking) Fetch(ctx context.Context) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (blocking) String() string { return "blocking" }

// TestFollowEnds holds that Follow ends with its context wherever it is, without
// a word and without leaving a goroutine in the bubble.
func TestFollowEnds(t *testing.T) {
	waits := func(ctx context.Context, changed func()) error {
		changed()
		<-ctx.Done()
		return ctx.Err()
	}
	tests := map[string]struct {
		source host.Source
		apply  func(ctx context.Context, module []byte, sha256 string) error
	}{
		"in a fetch": {source: blocking{}},
		"in apply": {source: &watched{memory: memory{content: "one"}, watch: waits}, apply: func(ctx context.Context, _ []byte, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}},
		"between looks": {source: &watched{memory: memory{content: "one"}, watch: waits}},
		"while it watches a file that does not exist": {source: host.File("absent")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, when := range []string{"before", "during"} {
				ctx, cancel := context.WithCancel(t.Context())
				if when == "before" {
					cancel()
				}
				opts := host.FollowOptions{Failed: func(err error) {
					if name != "while it watches a file that does not exist" || when == "before" {
						t.Errorf("%s: failed: %v", when, err)
					}
				}}
				ended := make(chan error)
				go func() {
					ended <- host.Follow(ctx, test.source, opts, func(ctx context.Context, module []byte, sha256 string) error {
						if when == "before" {
							t.Error("a module was applied")
						}
						if test.apply == nil {
							return nil
						}
						return test.apply(ctx, module, sha256)
					})
				}()
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
		})
	}
}

func TestFollowRefuses(t *testing.T) {
	tests := map[string]struct {
		source host.Source
		opts   host.FollowOptions
		want   string
	}{
		"no source":              {want: "follow: source is missing"},
		"a source to be pinned":  {source: host.HTTPS("https://example.com/zone.wasm", host.HTTPSOptions{}), want: "follow: source https://example.com/zone.wasm needs sha256"},
		"an interval below zero": {source: &memory{}, opts: host.FollowOptions{Interval: -1}, want: "follow memory: interval is -1ns, less than 0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := host.Follow(t.Context(), test.source, test.opts, nil)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// TestPluginFollow swaps the module of a plugin by renaming files.
func TestPluginFollow(t *testing.T) {
	file := t.TempDir() + "/plugin.wasm"
	install := func(name string) string {
		t.Helper()
		module, err := testdata(name).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		replace(t, file, string(module))
		return digest(module)
	}
	install("noop")
	cfg := config("noop")
	cfg.Module.Source = host.File(file)
	builds := make(chan host.BuildEvent, 10)
	cfg.Observer = built(builds)
	p := load(t, cfg)
	<-builds

	ctx, cancel := context.WithCancel(t.Context())
	failures, ended := make(chan error, 10), make(chan error)
	go func() {
		ended <- p.Follow(ctx, host.FollowOptions{Interval: time.Hour, Failed: func(err error) { failures <- err }})
	}()
	want := install("spins")
	if b := <-builds; b.Err != nil || b.Digest != want || !b.Swap {
		t.Errorf("built %+v, want a swap to %s", b, want)
	}
	install("nomarker")
	if err := <-failures; !errors.As(err, new(*host.ExportError)) {
		t.Errorf("got %v", err)
	}
	if got := p.Digest(); got != want {
		t.Errorf("the plugin runs %s, want %s", got, want)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	// A pinned module has nothing to follow.
	cfg.Module.SHA256 = install("noop")
	if err := load(t, cfg).Follow(t.Context(), host.FollowOptions{}); err != nil {
		t.Error(err)
	}
}

// TestPluginFollowConfigMap swaps the module of a plugin by what an informer sees.
func TestPluginFollowConfigMap(t *testing.T) {
	c := newCluster(func(changes int) *corev1.ConfigMap {
		module, err := testdata([]string{"noop", "spins"}[changes%2]).Fetch(t.Context())
		if err != nil {
			t.Error(err)
		}
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "plugins", Name: "zone"},
			Data:       map[string]string{"zone.wasm": base64.StdEncoding.EncodeToString(module)},
		}
	})
	defer c.Close()
	watched := make(chan struct{}, 10)
	c.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("watch") {
			watched <- struct{}{}
		}
		return false
	}
	cfg := config("noop")
	cfg.Module.Source = host.ConfigMapKey(configMaps{c.client}, "plugins", "zone", "zone.wasm")
	builds := make(chan host.BuildEvent, 10)
	cfg.Observer = built(builds)
	p := load(t, cfg)
	<-builds

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- p.Follow(ctx, host.FollowOptions{Interval: time.Hour, Failed: func(err error) { t.Error(err) }})
	}()
	<-watched
	for range 2 {
		c.Change("configmaps", 0)
		if b := <-builds; b.Err != nil || !b.Swap || b.Digest != p.Digest() {
			t.Errorf("built %+v, want a swap", b)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// built passes builds on.
type built chan<- host.BuildEvent

func (b built) Built(_ context.Context, build host.BuildEvent) { b <- build }

func (built) Called(context.Context, host.CallEvent) {}

func (built) Refused(context.Context, string, error) {}
func (built) Restarted(string, bool)                 {}

func (built) CacheHits(string, string, uint64) {}

// conditional is a memory whose revision is its content.
type conditional struct{ memory }

func (c *conditional) FetchUnless(ctx context.Context, revision string) (module []byte, current string, err error) {
	c.mu.Lock()
	content := c.content
	c.mu.Unlock()
	if content == revision {
		return nil, revision, nil
	}
	module, err = c.Fetch(ctx)
	return module, content, err
}

// TestFollowFetchesARevisionOnce holds that a module is not fetched again as long as its
// revision is the same, whether it was applied or refused, and that it is after an error.
func TestFollowFetchesARevisionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := &conditional{memory{content: "v1"}}
		f := follow(ctx, source, host.FollowOptions{Interval: time.Minute, Applied: digest([]byte("v1"))})
		f.check(t)
		for _, step := range []struct {
			content string
			want    []string
			fetches int
		}{
			{"v1", nil, 0},
			{"v2", []string{"applied v2"}, 1},
			{"bad", []string{"refused bad"}, 1},
			{"bad", nil, 0},
			{"error: away", []string{"fetch module of memory: away"}, 1},
			{"error: away", []string{"fetch module of memory: away"}, 1},
			{"bad", nil, 0},
			{"v2", nil, 1},
			{"v3", []string{"applied v3"}, 1},
		} {
			source.set(step.content)
			before := source.fetched()
			time.Sleep(time.Minute)
			f.check(t, step.want...)
			if got := source.fetched() - before; got != step.fetches {
				t.Errorf("%q was fetched %d times, want %d", step.content, got, step.fetches)
			}
		}
		f.end(t, cancel)
	})
}

// TestFollowTellsWhatItHasRead holds that each check is told, also of a module that was
// applied or refused before and of one that was not fetched again.
func TestFollowTellsWhatItHasRead(t *testing.T) {
	for name, source := range map[string]interface {
		host.Source
		set(string)
	}{"a plain source": &memory{content: "one"}, "a source with revisions": &conditional{memory{content: "one"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var read []string
				f := follow(ctx, source, host.FollowOptions{Checked: func(sha256 string) { read = append(read, sha256) }})
				for _, content := range []string{"one", "one", "bad", "bad", "error: gone", "bad", "one"} {
					synctest.Wait()
					source.set(content)
					time.Sleep(host.DefaultFollowInterval)
				}
				synctest.Wait()
				var want []string
				for _, content := range []string{"one", "one", "one", "bad", "bad", "bad", "one"} {
					want = append(want, digest([]byte(content)))
				}
				if diff := cmp.Diff(want, read); diff != "" {
					t.Errorf("read (-want +got):\n%s", diff)
				}
				f.mu.Lock()
				f.events = nil
				f.mu.Unlock()
				f.end(t, cancel)
			})
		})
	}
}

// keeper is a source that is told what was loaded.
type keeper struct {
	host.Source
	kept []string
}

func (k *keeper) Keep(sha256 string) { k.kept = append(k.kept, sha256) }

func (k *keeper) Kept(context.Context) ([]byte, error) { return nil, errors.New("nothing is kept") }

func TestFollowTellsWhatWasTaken(t *testing.T) {
	for name, tt := range map[string]struct {
		opts host.FollowOptions
		err  error
		want []string
	}{
		"a module that is taken":      {want: []string{digest([]byte("a"))}},
		"a module that is refused":    {err: errors.New("no")},
		"one that was refused before": {opts: host.FollowOptions{Refused: digest([]byte("a"))}},
		"one that is in use":          {opts: host.FollowOptions{Applied: digest([]byte("a"))}, want: []string{digest([]byte("a"))}},
	} {
		ctx, stop := context.WithCancel(t.Context())
		k := &keeper{Source: host.Bytes([]byte("a"))}
		tt.opts.Checked = func(string) { stop() }
		err := host.Follow(ctx, k, tt.opts, func(context.Context, []byte, string) error { return tt.err })
		if diff := cmp.Diff(tt.want, k.kept); diff != "" || err != nil {
			t.Errorf("%s: %v, kept (-want +got)\n%s", name, err, diff)
		}
	}
}

// TestModulesThatAreFollowed loads a plugin that follows its module by itself, until it is closed.
// It is stale as long as the source has no module that can serve.
func TestModulesThatAreFollowed(t *testing.T) {
	read := func(name string) string {
		module, err := testdata(name).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(module)
	}
	noop, spins := read("noop"), read("spins")
	source := &watched{memory: memory{content: noop}}
	hints, ended := make(chan struct{}), make(chan struct{})
	source.watch = func(ctx context.Context, changed func()) error {
		defer close(ended)
		for {
			select {
			case <-hints:
				changed()
			case <-ctx.Done():
				return nil
			}
		}
	}
	cfg := config("noop")
	cfg.Module = host.ModuleConfig{Source: source, Follow: true}
	p := load(t, cfg)
	for _, step := range []struct {
		what, content, serves string
		state                 host.State
	}{
		{"a broken module", "no module", noop, host.Stale},
		{"the first again", noop, noop, host.Serving},
		{"a source that is away", "error: away", noop, host.Stale},
		{"another module", spins, spins, host.Serving},
		{"one without the marker", read("nomarker"), spins, host.Stale},
		{"the other again", spins, spins, host.Serving},
	} {
		source.set(step.content)
		hints <- struct{}{}
		for deadline := time.Now().Add(time.Minute); p.Stats().State != step.state || p.Digest() != digest([]byte(step.serves)); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s serves, the state is %s", step.what, p.Digest(), p.Stats().State)
			}
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended // The watch ends with the plugin.
}

// TestFollowFetchesAgainForMemory holds that a module without room in memory is fetched again, also
// from a source with revisions.
func TestFollowFetchesAgainForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var applied []string
		ended := make(chan error, 1)
		go func() {
			ended <- host.Follow(ctx, &conditional{memory{content: "v1"}}, host.FollowOptions{Interval: time.Minute}, func(_ context.Context, module []byte, _ string) error {
				if applied = append(applied, string(module)); len(applied) == 1 {
					return host.ErrMemory
				}
				return nil
			})
		}()
		time.Sleep(150 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"v1", "v1"}, applied); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
	})
}
