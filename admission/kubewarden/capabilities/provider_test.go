package capabilities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newProvider(t *testing.T, cfg Config) (p *Provider, clock *atomic.Int64) {
	t.Helper()
	p, err := NewProvider(cfg)
	if err != nil {
		t.Fatal(err)
	}
	clock = new(atomic.Int64)
	p.now = func() time.Time { return time.Unix(0, clock.Load()) }
	return p, clock
}

// answering returns a question whose answers are counted.
func answering(n *atomic.Int64, answer string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		n.Add(1)
		return []byte(answer), nil
	}
}

func TestAnswersAreKeptForATime(t *testing.T) {
	p, clock := newProvider(t, Config{})
	c, d := p.Caller("c", Scope{}), p.Caller("d", Scope{})
	var asked atomic.Int64
	ask := func(c *Caller, operation, key string, ttl time.Duration) {
		t.Helper()
		if answer, err := c.ask(t.Context(), operation, key, ttl, answering(&asked, key)); err != nil || string(answer) != key {
			t.Errorf("answer is %s, %v", answer, err)
		}
	}
	ask(c, "a", "x", time.Minute)
	ask(c, "a", "x", time.Minute)
	ask(d, "a", "x", time.Minute) // Another policy shares it.
	ask(c, "a", "y", time.Minute)
	ask(c, "b", "x", time.Minute)
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
	clock.Add(int64(time.Minute - 1))
	ask(c, "a", "x", time.Minute)
	clock.Add(1)
	ask(c, "a", "x", time.Minute)
	ask(c, "a", "x", 0) // A fresh one is kept by nobody.
	ask(c, "a", "x", 0)
	if n := asked.Load(); n != 6 {
		t.Errorf("asked %d times, want 6", n)
	}
	want := Stats{Hits: 3, Misses: 4, Entries: 3, Bytes: 3 * (entryBytes + 1)}
	if diff := cmp.Diff(want, p.Stats()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	p, clock := newProvider(t, Config{Bounds: Bounds{CacheBytes: 8 * (entryBytes + 100), CacheEntries: 6}})
	c := p.Caller("c", Scope{})
	var asked atomic.Int64
	ask := func(key string, n int) {
		t.Helper()
		if _, err := c.ask(t.Context(), "a", key, time.Minute, answering(&asked, strings.Repeat("x", n))); err != nil {
			t.Error(err)
		}
	}
	for i := range 20 {
		ask(fmt.Sprint(i), 100)
		ask("0", 100) // Used all the time.
	}
	if n := asked.Load(); n != 20 {
		t.Errorf("asked %d times, want 20", n)
	}
	if s := p.Stats(); s.Entries != 6 || s.Bytes != 6*(entryBytes+100) || s.Evictions != 14 {
		t.Errorf("%+v", s)
	}
	ask("large", 2*(entryBytes+100)+1) // More than a quarter.
	ask("large", 2*(entryBytes+100)+1)
	if n := asked.Load(); n != 22 {
		t.Errorf("asked %d times, want 22", n)
	}
	ask("three", entryBytes+200)
	ask("four", entryBytes+200)
	if s := p.Stats(); s.Bytes > 8*(entryBytes+100) || s.Entries != 6 {
		t.Errorf("%+v", s)
	}
	evictions := p.Stats().Evictions
	clock.Add(int64(time.Hour))
	for i := range 6 {
		ask(fmt.Sprint("late", i), 1)
	}
	if s := p.Stats(); s.Evictions != evictions {
		t.Errorf("answers that were too old count as %d evictions", s.Evictions-evictions)
	}
}

func TestCallersShareAQuestion(t *testing.T) {
	p, _ := newProvider(t, Config{})
	begun, goOn := make(chan struct{}), make(chan struct{})
	var asked atomic.Int64
	f := func(context.Context) ([]byte, error) {
		asked.Add(1)
		close(begun)
		<-goOn
		return []byte("x"), nil
	}
	leaving, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := p.Caller("first", Scope{}).ask(leaving, "a", "k", time.Minute, f); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
	})
	<-begun
	for i := range 50 {
		wg.Go(func() {
			if answer, err := p.Caller(fmt.Sprint(i), Scope{}).ask(t.Context(), "a", "k", time.Minute, f); err != nil || string(answer) != "x" {
				t.Errorf("answer is %s, %v", answer, err)
			}
		})
	}
	for p.Stats().Shared != 50 {
		time.Sleep(time.Millisecond)
	}
	leave() // What it began goes on for the others.
	close(goOn)
	wg.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	p, _ := newProvider(t, Config{Bounds: Bounds{Timeout: metav1.Duration{Duration: 10 * time.Millisecond}}})
	c := p.Caller("c", Scope{})
	for name, test := range map[string]struct {
		f    func(context.Context) ([]byte, error)
		want string
	}{
		"an error": {func(context.Context) ([]byte, error) { return nil, errors.New("no") }, "no"},
		"a panic":  {func(context.Context) ([]byte, error) { panic("oops") }, "panic: oops"},
		"a question that ends with its time": {func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return nil, errors.New("gave up")
		}, "no answer within 10ms: context deadline exceeded"},
	} {
		for range 2 {
			if _, err := c.ask(t.Context(), name, "", time.Minute, test.f); err == nil || err.Error() != test.want {
				t.Errorf("%s: error is %v", name, err)
			}
		}
		if answer, err := c.ask(t.Context(), name, "", time.Minute, answering(new(atomic.Int64), "yes")); err != nil || string(answer) != "yes" {
			t.Errorf("%s: then the answer is %s, %v", name, answer, err)
		}
	}
}

// A policy that asks without end waits for itself, and nobody else does.
func TestQuestionsUnderWayAreBounded(t *testing.T) {
	p, _ := newProvider(t, Config{})
	goOn := make(chan struct{})
	var running, most atomic.Int64
	slow := func(context.Context) ([]byte, error) {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-goOn
		running.Add(-1)
		return nil, nil
	}
	greedy := p.Caller("greedy", Scope{})
	var wg sync.WaitGroup
	for i := range 4 * maxUnderWay {
		wg.Go(func() { _, _ = greedy.ask(t.Context(), "a", fmt.Sprint(i), time.Minute, slow) })
	}
	for running.Load() != maxUnderWay {
		time.Sleep(time.Millisecond)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := greedy.ask(short, "a", "late", time.Minute, slow); err == nil || !strings.Contains(err.Error(), "the policy has 8 pending questions") {
		t.Errorf("error is %v", err)
	}
	// The same question by another policy does not wait for a slot of the first.
	if answer, err := p.Caller("other", Scope{}).ask(t.Context(), "a", "late", time.Minute, answering(new(atomic.Int64), "yes")); err != nil || string(answer) != "yes" {
		t.Errorf("answer is %s, %v", answer, err)
	}
	close(goOn)
	wg.Wait()
	if n := most.Load(); n > maxUnderWay {
		t.Errorf("%d questions at a time", n)
	}
}

func TestProviderHammer(t *testing.T) {
	p, err := NewProvider(Config{Bounds: Bounds{CacheBytes: 10_000, CacheEntries: 20, TTL: metav1.Duration{Duration: time.Millisecond}, Timeout: metav1.Duration{Duration: time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		c := p.Caller(fmt.Sprint("p", i%3), Scope{})
		wg.Go(func() {
			defer c.Close()
			for n := range 400 {
				key := fmt.Sprint(n % 37)
				answer, err := c.ask(t.Context(), "a", key, time.Minute, func(context.Context) ([]byte, error) {
					if n%11 == 0 {
						return nil, errors.New("no")
					}
					return []byte(key), nil
				})
				if err == nil && string(answer) != key {
					t.Errorf("answer is %s, want %s", answer, key)
				}
				c.Count(LookupHost, err)
				_ = p.Stats()
			}
		})
	}
	wg.Wait()
	s := p.Stats()
	if s.Entries > 20 || s.Bytes > 10_000 || len(s.Calls) != 0 || len(p.flying) != 0 {
		t.Errorf("%+v, %d under way", s, len(p.flying))
	}
}

func TestNewProviderReportsEveryMistake(t *testing.T) {
	_, err := NewProvider(Config{Bounds: Bounds{CacheBytes: -1, CacheEntries: -1, TTL: metav1.Duration{Duration: -1}, Timeout: metav1.Duration{Duration: -1}}})
	const want = "configure host capabilities: cacheBytes is less than 0\ncacheEntries is less than 0\nttl is less than 0\ntimeout is less than 0"
	if err == nil || err.Error() != want {
		t.Errorf("error is %v", err)
	}
}

// A provider that has neither says so, after the grants.
func TestNothingToAsk(t *testing.T) {
	var p *Provider
	c := p.Caller("c", Scope{Repositories: []string{"*"}, HostNames: []string{"*"}})
	image := Image{Repository: "ghcr.io/acme/zone", Tag: "1"}
	_, err := c.Digest(t.Context(), image)
	if err == nil || err.Error() != "the host has no access to registries" {
		t.Errorf("error is %v", err)
	}
	if _, err := c.LookupHost(t.Context(), "example.com", nil); err == nil || err.Error() != "the host does not look up host names" {
		t.Errorf("error is %v", err)
	}
}
