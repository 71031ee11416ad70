package manage

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
)

// BreakGlass lets every policy only monitor until a time, as if its mode were Monitor: a way out
// when policies keep a cluster from being repaired. Conversions go on, and so do the checks of
// requests before any policy is asked.
type BreakGlass struct {
	// Until is the end, at most [MaxBreakGlass] away.
	Until time.Time `json:"until"`
	// Reason is for the log and for those who look at the server. It is required, and has at most
	// 256 bytes.
	Reason string `json:"reason"`
}

// MaxBreakGlass is the longest time for which the policies only monitor.
const MaxBreakGlass = 24 * time.Hour

// maxReasonBytes is the length of the longest BreakGlass.Reason.
const maxReasonBytes = 256

// While policies only monitor, a line is logged in each glassInterval, and the clock is looked at in
// each clockInterval.
const (
	glassInterval = time.Minute
	clockInterval = time.Second
)

// check returns the mistakes.
func (b *BreakGlass) check(now time.Time) (errs []error) {
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("breakGlass."+format, args...))
	}
	switch left := b.Until.Sub(now); {
	case b.Until.IsZero():
		fail("until is missing")
	case left > MaxBreakGlass:
		fail("until is %s, in %s, want at most %s", b.Until.Format(time.RFC3339), left.Round(time.Second), MaxBreakGlass)
	}
	switch n := len(b.Reason); {
	case n == 0:
		fail("reason is missing")
	case n > maxReasonBytes:
		fail("reason has %d bytes, want at most %d", n, maxReasonBytes)
	}
	return errs
}

// glass is a BreakGlass in force.
type glass struct {
	BreakGlass
	// end fires when its time has gone by, also if the clock of the machine was set back meanwhile.
	// If it was set forward, the clock tells.
	end *time.Timer
}

// SetBreakGlass lets the policies only monitor, or ends that if b is nil. It is independent of the
// configuration file's breakGlass, and lasts beyond restarts if there is a directory. The error
// joins all mistakes.
func (m *Manager) SetBreakGlass(b *BreakGlass) error {
	if b != nil {
		if errs := b.check(time.Now()); len(errs) != 0 {
			return errors.Join(errs...)
		}
		if !b.Until.After(time.Now()) {
			return fmt.Errorf("breakGlass.until is %s, which is past", b.Until.Format(time.RFC3339))
		}
	}
	leave, err := m.enter()
	if err != nil {
		return err
	}
	defer leave()
	m.mu.Lock()
	if err := m.closedErr(); err != nil {
		m.mu.Unlock()
		return err
	}
	m.breakGlass(fromAPI, b)
	m.mu.Unlock()
	m.publish()
	return m.keepBreakGlass()
}

// BreakGlass returns what lets the policies only monitor now, the one that lasts longest, and nil
// if nothing does.
func (m *Manager) BreakGlass() (longest *BreakGlass) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.glasses {
		if longest == nil || g.Until.After(longest.Until) {
			longest = &BreakGlass{g.Until, g.Reason}
		}
	}
	return longest
}

// breakGlass sets the BreakGlass of an origin, or removes it. mu must be held, and publish must
// follow.
func (m *Manager) breakGlass(origin string, b *BreakGlass) {
	old := m.glasses[origin]
	if b != nil && !b.Until.After(time.Now()) {
		b = nil
	}
	switch {
	case old != nil && b != nil && old.Until.Equal(b.Until) && old.Reason == b.Reason:
		return
	case old != nil:
		old.end.Stop()
		delete(m.glasses, origin)
		if b == nil && len(m.glasses) == 0 {
			m.log(slog.LevelWarn, "policies are enforced again", "origin", origin)
		}
	}
	if b == nil {
		return
	}
	g := &glass{BreakGlass: *b}
	m.glasses[origin] = g
	m.sayBroken(origin, g)
	g.end = time.AfterFunc(time.Until(b.Until), func() { m.endBreakGlass(origin, g) })
	said := time.Now()
	var again func()
	again = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.glasses[origin] != g {
			return
		}
		if !g.Until.After(time.Now().Round(0)) { // Without its reading of the monotonic clock.
			g.end.Reset(0)
			return
		}
		if time.Since(said) >= glassInterval {
			said = time.Now()
			m.sayBroken(origin, g)
		}
		time.AfterFunc(clockInterval, again)
	}
	time.AfterFunc(clockInterval, again)
}

func (m *Manager) sayBroken(origin string, g *glass) {
	m.log(slog.LevelWarn, "the glass is broken: policies only monitor", "until", g.Until.UTC().Format(time.RFC3339), "reason", g.Reason, "origin", origin)
}

// endBreakGlass ends a BreakGlass at its time.
func (m *Manager) endBreakGlass(origin string, g *glass) {
	m.mu.Lock()
	if m.closed || m.glasses[origin] != g {
		m.mu.Unlock()
		return
	}
	m.working.Add(1) // Close waits for it.
	defer m.working.Done()
	m.breakGlass(origin, nil)
	m.mu.Unlock()
	m.publish()
	if err := m.keepBreakGlass(); err != nil && !errors.Is(err, host.ErrClosed) { // The end is past at the next start.
		m.log(slog.LevelError, "the end of break glass is not kept", "err", err)
	}
}

// restoreBreakGlass restores what was kept.
func (m *Manager) restoreBreakGlass() error {
	data, err := readFile(m.store.glassFile(), maxRecordBytes)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	b := new(BreakGlass)
	if err := configfile.JSON(data, b); err != nil {
		return fmt.Errorf("%s: %w", m.store.glassFile(), err)
	}
	if errs := b.check(time.Now()); len(errs) != 0 {
		return fmt.Errorf("%s: %w", m.store.glassFile(), errors.Join(errs...))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.breakGlass(fromAPI, b)
	return nil
}

// keepBreakGlass stores what the API has set.
func (m *Manager) keepBreakGlass() error {
	if m.store == nil {
		return nil
	}
	m.storing.Lock()
	defer m.storing.Unlock()
	m.mu.Lock()
	g, err := m.glasses[fromAPI], m.closedErr()
	m.mu.Unlock()
	if err != nil {
		return err // Close has ended everything, which must not be kept.
	}
	if g == nil {
		if err = os.Remove(m.store.glassFile()); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = syncDir(m.store.dir)
		}
	} else {
		var data []byte
		if data, err = json.Marshal(g.BreakGlass); err == nil {
			err = replaceFile(m.store.glassFile(), data)
		}
	}
	if err != nil {
		return &keepError{fmt.Errorf("the change is in service, and not kept: %w", err)}
	}
	return nil
}

// glassFile is the file of the BreakGlass that the API has set. No name of a plugin leads to it.
func (s *store) glassFile() string { return filepath.Join(s.dir, "break-glass.list") }
