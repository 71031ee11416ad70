package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/loading"
)

const (
	// fuelBurst is the time whose fuel a namespace may use at once, after it has used none for as long.
	fuelBurst = 10 * time.Second
	// maxDebtors is the maximum number of namespaces without policies that still owe fuel.
	maxDebtors = 1000
)

// fuelQuotas bound the fuel that the policies of each namespace use over time, by quota.fuelPerSecond of
// ModuleTrusts. Each namespace with a quota has a token bucket, full at first. A call may begin while
// there is fuel in it, and pays at its end: the calls that run at the same time may overdraw it, and no
// other begins until the debt is paid back.
//
// The unit is fuel, and not time. The host counts it exactly, with its own work for a guest. The duration
// of a call also counts the time for which the guest waits for a processor that others use.
//
// The host asks them for the accounts of plugins as a [host.Observer]. Plugins whose name has no
// namespace have none, and take no lock.
type fuelQuotas struct {
	logger *slog.Logger
	now    func() time.Time

	mu sync.Mutex
	// of has the buckets of namespaces with a quota.
	of map[string]*fuelBucket
}

var (
	_ host.Observer           = (*fuelQuotas)(nil)
	_ loading.AccountObserver = (*fuelQuotas)(nil)
)

func newFuelQuotas(logger *slog.Logger) *fuelQuotas {
	return &fuelQuotas{logger: logger, now: time.Now, of: map[string]*fuelBucket{}}
}

// fuelBucket is the fuel of a namespace at a time, less than 0 if it is overdrawn.
type fuelBucket struct {
	perSecond, fuel float64
	at              time.Time
	// told is set from the log line for an empty bucket until it is full again.
	told bool
}

func (b *fuelBucket) size() float64 { return b.perSecond * fuelBurst.Seconds() }
func (b *fuelBucket) full() bool    { return b.fuel >= b.size() }

// refill adds the fuel for the time that has passed.
func (b *fuelBucket) refill(now time.Time) {
	b.fuel = min(b.fuel+b.perSecond*max(now.Sub(b.at), 0).Seconds(), b.size())
	b.at = now
}

// set sets the fuel per second of the namespaces with policies: 0 for no bound, and less for that of
// before. The bucket of a namespace without policies goes once it is full, so that nobody gets a full one
// for deleting and creating a policy.
func (q *fuelQuotas) set(perSecond map[string]int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for namespace, n := range perSecond {
		b := q.of[namespace]
		switch {
		case n < 0:
		case n == 0:
			delete(q.of, namespace)
		case b == nil:
			b = &fuelBucket{perSecond: float64(n), at: now}
			b.fuel = b.size()
			q.of[namespace] = b
		default:
			b.refill(now)
			b.perSecond = float64(n)
			b.refill(now)
		}
	}
	debtors := 0
	for namespace, b := range q.of {
		if _, ok := perSecond[namespace]; ok {
			continue
		}
		if b.refill(now); b.full() || debtors == maxDebtors {
			delete(q.of, namespace)
			continue
		}
		debtors++
	}
}

// AccountOf implements [loading.AccountObserver].
func (q *fuelQuotas) AccountOf(plugin string) loading.Account {
	namespace, _, ok := strings.Cut(plugin, "/")
	if !ok {
		return nil
	}
	return &fuelAccount{q, namespace}
}

// fuelAccount is the account of the policies of a namespace. It outlives their bucket.
type fuelAccount struct {
	quotas    *fuelQuotas
	namespace string
}

// Err implements [loading.Account].
func (a *fuelAccount) Err() error {
	q := a.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.of[a.namespace]
	if b == nil {
		return nil
	}
	if b.refill(q.now()); b.fuel > 0 {
		if b.told && b.full() {
			b.told = false
			q.logger.Info("the policies of a namespace have their whole quota of fuel again", "namespace", a.namespace)
		}
		return nil
	}
	if !b.told {
		b.told = true
		q.logger.Warn("the policies of a namespace have used up their quota of fuel; their failure policies decide", "namespace", a.namespace, "limit", int64(b.perSecond))
	}
	const longest = 1e9 // Seconds, which a Duration can hold.
	wait := time.Duration(min(-b.fuel/b.perSecond, longest) * float64(time.Second))
	return fmt.Errorf("%w: the policies of the namespace %q may use %.0f in a second together, by quota.fuelPerSecond of a ModuleTrust; calls begin again in %s",
		loading.ErrQuota, a.namespace, b.perSecond, max(wait, time.Millisecond).Round(time.Millisecond))
}

// Charge implements [loading.Account].
func (a *fuelAccount) Charge(fuel int64) {
	q := a.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.of[a.namespace]; b != nil {
		b.refill(q.now())
		b.fuel -= float64(max(fuel, 0))
	}
}

// The events of plugins change nothing.

func (*fuelQuotas) Called(context.Context, host.CallEvent) {}
func (*fuelQuotas) Built(context.Context, host.BuildEvent) {}
func (*fuelQuotas) CacheHits(string, string, uint64)       {}
func (*fuelQuotas) Refused(context.Context, string, error) {}
func (*fuelQuotas) Restarted(string, bool)                 {}
