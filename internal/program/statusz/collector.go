package statusz

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// Collector keeps the calls of the last hour of each plugin, and the last refusals and traps. It is
// the observer of plugins, and [Collector.Log] reads their log. The zero value is ready for use, by
// several goroutines.
type Collector struct {
	// plugins is read without a lock: a map is never changed, only replaced, while mu is held.
	plugins atomic.Pointer[map[string]*hour]
	mu      sync.Mutex
	// full is the last minute in which maxHours plugins had calls, in minutes since 1970.
	full atomic.Int64

	refusals, traps ring
}

var _ host.Observer = (*Collector)(nil)

const (
	// minutes is the length of the plots.
	minutes = 60
	// maxHours bounds the plugins whose calls are kept.
	maxHours = 1024
	// buckets are those of durations: two in each power of two, from 32 ns to 34 s.
	buckets = 60
)

// hour holds the calls of the last hour of a plugin. A minute without calls has no memory.
type hour struct {
	minutes [minutes]atomic.Pointer[minute]
	mu      sync.Mutex // Held while a minute is replaced or begins anew.
}

// minute holds the calls of one minute.
type minute struct {
	since     atomic.Int64 // In minutes since 1970.
	errors    atomic.Uint32
	fuel      atomic.Int64
	durations [buckets]atomic.Uint32
}

// bucketOf returns the bucket of a duration.
func bucketOf(d time.Duration) int {
	v := uint64(max(0, d)) >> 5
	if v < 2 {
		return int(v)
	}
	n := bits.Len64(v)
	return min(2*(n-1)+int(v>>(n-2)&1), buckets-1)
}

// bound returns the upper bound of a bucket.
func bound(bucket int) time.Duration {
	if bucket < 2 {
		return time.Duration(bucket+1) << 5
	}
	return time.Duration(3+bucket&1) << (bucket/2 - 1 + 5)
}

// Called implements [host.Observer]. It allocates nothing but a minute's counters.
func (c *Collector) Called(_ context.Context, e host.CallEvent) {
	if e.Function == "_initialize" || e.Function == abi.Marker || e.Function == configure {
		return // They run once, before the plugin serves.
	}
	since := e.Start.Unix() / 60
	h := c.hour(e.Plugin, since)
	if h == nil {
		return
	}
	m := h.at(since)
	m.durations[bucketOf(e.Duration)].Add(1)
	m.fuel.Add(e.Fuel)
	if e.Err != nil {
		m.errors.Add(1)
	}
}

var configure = abi.Configure.String()

// hour returns the calls of a plugin that is called in a minute, nil if there are too many plugins.
// It looks for room among those once a minute.
func (c *Collector) hour(plugin string, since int64) *hour {
	if known := c.plugins.Load(); known != nil {
		if h := (*known)[plugin]; h != nil {
			return h
		}
	}
	if c.full.Load() == since {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]*hour{}
	if known := c.plugins.Load(); known != nil {
		if h := (*known)[plugin]; h != nil {
			return h
		}
		maps.Copy(next, *known)
	}
	if len(next) >= maxHours { // Plugins come and go by the management API.
		now := time.Now()
		maps.DeleteFunc(next, func(_ string, h *hour) bool { return h.sum(now).Calls == 0 })
		if len(next) >= maxHours {
			c.full.Store(since)
			return nil
		}
	}
	h := new(hour)
	next[strings.Clone(plugin)] = h
	c.plugins.Store(&next)
	return h
}

// at returns the counters of a minute.
func (h *hour) at(since int64) *minute {
	place := &h.minutes[uint64(since)%minutes]
	m := place.Load()
	if m != nil && m.since.Load() == since {
		return m
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if m = place.Load(); m == nil {
		m = new(minute)
		m.since.Store(since)
		place.Store(m)
	} else if m.since.Load() != since {
		m.errors.Store(0)
		m.fuel.Store(0)
		for i := range m.durations {
			m.durations[i].Store(0)
		}
		m.since.Store(since)
	}
	return m
}

// Calls are the calls of a plugin in the last hour.
type Calls struct {
	Calls  uint64 `json:"calls"`
	Errors uint64 `json:"errors"`
	// Fuel is the fuel of all calls, and FuelPerCall that of one on average.
	Fuel        int64 `json:"fuel"`
	FuelPerCall int64 `json:"fuelPerCall"`
	// P50 and P99 are quantiles of the duration, rounded up by less than a half. Total is the time of
	// all calls.
	P50   time.Duration `json:"p50Nanoseconds"`
	P99   time.Duration `json:"p99Nanoseconds"`
	Total time.Duration `json:"totalNanoseconds"`
	// Minutes are the minutes with calls, the oldest first.
	Minutes []Minute `json:"minutes,omitempty"`
}

// Minute is a minute with calls.
type Minute struct {
	// Ago is the number of minutes before now: 0 to 59.
	Ago    int           `json:"ago"`
	Calls  uint64        `json:"calls"`
	Errors uint64        `json:"errors,omitempty"`
	P99    time.Duration `json:"p99Nanoseconds"`
}

// sum returns the calls of the hour before now.
func (h *hour) sum(now time.Time) (c Calls) {
	var all [buckets]uint64
	current := now.Unix() / 60
	for ago := minutes - 1; ago >= 0; ago-- {
		m := h.minutes[uint64(current-int64(ago))%minutes].Load()
		if m == nil || m.since.Load() != current-int64(ago) {
			continue
		}
		var own [buckets]uint64
		of := Minute{Ago: ago, Errors: uint64(m.errors.Load())}
		for i := range own {
			own[i] = uint64(m.durations[i].Load())
			all[i] += own[i]
			of.Calls += own[i]
			c.Total += time.Duration(own[i]) * bound(i)
		}
		if of.Calls == 0 {
			continue // The first one is being counted.
		}
		of.P99 = quantile(&own, of.Calls, 0.99)
		c.Calls, c.Errors, c.Fuel = c.Calls+of.Calls, c.Errors+of.Errors, c.Fuel+m.fuel.Load()
		c.Minutes = append(c.Minutes, of)
	}
	c.P50, c.P99 = quantile(&all, c.Calls, 0.5), quantile(&all, c.Calls, 0.99)
	if c.Calls != 0 {
		c.FuelPerCall = c.Fuel / int64(c.Calls)
	}
	return c
}

func quantile(of *[buckets]uint64, n uint64, q float64) time.Duration {
	left := uint64(q*float64(n)) + 1
	for i, calls := range of {
		if calls >= left {
			return bound(i)
		}
		left -= calls
	}
	if n == 0 {
		return 0
	}
	return bound(buckets - 1)
}

// Built implements [host.Observer].
func (*Collector) Built(context.Context, host.BuildEvent) {}

// CacheHits implements [host.Observer].
func (*Collector) CacheHits(string, string, uint64) {}

// Refused implements [host.Observer].
func (*Collector) Refused(context.Context, string, error) {}

// Restarted implements [host.Observer].
func (*Collector) Restarted(string, bool) {}

// Event is a refusal or a trap. Its texts are those of the log, which has no confidential values.
type Event struct {
	Time time.Time `json:"time"`
	// Plugin is the plugin or the policy.
	Plugin string `json:"plugin"`
	// Event is the message of the log line.
	Event string `json:"event"`
	// Object is the subject: "CREATE Pod shop/web", "PreCreateContainer of container shop/web/nginx".
	Object string `json:"object,omitempty"`
	User   string `json:"user,omitempty"`
	// Function is the function that trapped.
	Function string `json:"function,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Stack    string `json:"stack,omitempty"`
	// Monitored reports whether the request has passed, since the plugin only monitors.
	Monitored bool `json:"monitored,omitempty"`
	// Count is the number of equal events; Time is that of the last.
	Count int `json:"count"`
}

const (
	// keptEvents bounds the events of each kind. The other bounds are in bytes.
	keptEvents = 50
	nameBytes  = 256
	textBytes  = 1 << 10
	stackBytes = 8 << 10
)

// Refuse keeps a refusal.
func (c *Collector) Refuse(e Event) { c.refusals.add(e) }

// ring keeps the last events. One that is repeated has one place.
type ring struct {
	mu     sync.Mutex
	events []Event // The latest last.
}

func (r *ring) add(e Event) {
	for text, most := range map[*string]int{&e.Plugin: nameBytes, &e.Event: nameBytes, &e.Object: 3 * nameBytes, &e.User: nameBytes, &e.Function: nameBytes, &e.Reason: textBytes, &e.Stack: stackBytes} {
		*text = strings.Clone(cut.Marked(*text, most))
	}
	e.Time, e.Count = cmp.Or(e.Time, time.Now()).UTC(), 1
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.events, func(known Event) bool {
		known.Time, known.Count = e.Time, 1
		return known == e
	}); i >= 0 {
		e.Count += r.events[i].Count
		r.events = slices.Delete(r.events, i, i+1)
	} else if len(r.events) == keptEvents {
		i := r.least()
		r.events = slices.Delete(r.events, i, i+1)
	}
	r.events = append(r.events, e)
}

// least returns the event that others replace: the oldest one that only was monitored, of the plugin
// with the most events, so that no plugin takes the places of all.
func (r *ring) least() (least int) {
	of := func(e Event) string { return fmt.Sprint(e.Monitored, " ", e.Plugin) }
	n, most := map[string]int{}, 0
	for _, e := range r.events {
		n[of(e)]++
	}
	for i, e := range r.events {
		have := n[of(e)]
		if e.Monitored {
			have += keptEvents
		}
		if have > most {
			least, most = i, have
		}
	}
	return least
}

// last returns the events, the latest first.
func (r *ring) last() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events)
	slices.Reverse(events)
	return events
}
