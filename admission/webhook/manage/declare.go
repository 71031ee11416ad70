package manage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// declaration is a configuration file that is being applied.
type declaration struct {
	// origin is that of its policies: fromFile or fromCluster.
	origin string
	names  map[string]bool
	// settled is closed once each of its policies was loaded or refused, and the policies that it
	// does not have are gone. err joins the errors of the policies that cannot be loaded.
	settled chan struct{}
	err     error
}

// Apply puts the policies of the file into the engine, beside those loaded by the API. Unchanged
// policies are not touched. Each policy comes into service as soon as it is loaded; those that the
// file does not have leave after that, so that a policy under another name leaves no gap. A file
// that is wrong, or that has the name of a policy loaded by the API, is refused as a whole, and
// nothing changes. Otherwise, the error joins those of the policies that cannot be loaded; the
// others are in service.
//
// Apply waits for the policies until ctx ends; they are loaded nevertheless.
func (m *Manager) Apply(ctx context.Context, f *File) error {
	d, err := m.declare(f)
	if err != nil {
		return err
	}
	return d.wait(ctx)
}

func (d *declaration) wait(ctx context.Context) error {
	select {
	case <-d.settled:
		return d.err
	case <-ctx.Done():
		return fmt.Errorf("wait for policies: %w", context.Cause(ctx))
	}
}

// declare begins to apply a file. The error is the reason that nothing changes.
func (m *Manager) declare(f *File) (*declaration, error) {
	return m.declareIf(f, func() bool { return true })
}

// declareIf does the same unless wanted, which is called with mu held, returns false: the error is
// errSuperseded then.
func (m *Manager) declareIf(f *File, wanted func() bool) (*declaration, error) {
	errs := f.check(m.cfg.Namespaces, m.dialects())
	if len(errs) == 0 {
		errs = m.checkSources(f)
	}
	if f.BreakGlass != nil {
		errs = append(errs, f.BreakGlass.check(time.Now())...)
	}
	m.mu.Lock()
	if err := m.closedErr(); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	if !wanted() {
		m.mu.Unlock()
		return nil, errSuperseded
	}
	m.waiting = nil
	if len(errs) == 0 {
		if errs = m.taken(f); len(errs) != 0 {
			m.waiting = f
		}
	}
	if len(errs) != 0 {
		m.fileErr = fmt.Errorf("configuration: %w", errors.Join(errs...))
		defer m.mu.Unlock()
		return nil, m.fileErr
	}
	if len(f.Plugins)+len(f.Groups) == 0 {
		m.log(slog.LevelWarn, "configuration declares that there are no policies")
	}
	d := &declaration{origin: fromFile, names: map[string]bool{}, settled: make(chan struct{})}
	m.newest, m.fileErr = d, nil
	m.breakGlass(fromFile, f.BreakGlass)
	if m.cfg.LogLevel != nil {
		level := m.logLevel
		if f.LogLevel != nil {
			level = *f.LogLevel
		}
		if was := m.cfg.LogLevel.Level(); was != level {
			m.log(slog.LevelInfo, "the log has another level", "was", was.String(), "level", level.String())
			m.cfg.LogLevel.Set(level)
		}
	}
	var tried []<-chan struct{}
	for place, w := range f.wanted() {
		e := m.declarePolicy(w, fromFile, place)
		d.names[e.name] = true
		tried = append(tried, e.tried)
	}
	pruned := m.pruneOverrides()
	m.working.Go(func() { m.settle(d, tried) })
	m.mu.Unlock()
	m.publish() // The order may have changed.
	if pruned {
		m.keepOverrides()
	}
	return d, nil
}

// wanted returns the policies of a file, in their order.
func (f *File) wanted() (list []*wanted) {
	for i := range f.Plugins {
		list = append(list, &wanted{plugin: &f.Plugins[i], enabled: enabled(f.Plugins[i].Enabled)})
	}
	for i := range f.Groups {
		list = append(list, &wanted{group: &f.Groups[i], enabled: enabled(f.Groups[i].Enabled)})
	}
	return list
}

// name returns the name of the policy.
func (w *wanted) name() string {
	if w.plugin != nil {
		return w.plugin.Name
	}
	return w.group.Name
}

// key identifies the configuration of a version.
func (w *wanted) key() string {
	if w.mistake != nil {
		return keyOf(w.plugin) + " " + w.mistake.Error()
	}
	if w.plugin != nil {
		return keyOf(w.plugin)
	}
	return keyOf(w.group)
}

// taken returns the errors of names that the API's policies have, and of kinds that they convert. mu
// must be held.
func (m *Manager) taken(f *File) (errs []error) {
	for _, w := range f.wanted() {
		if e := m.entries[w.name()]; e != nil && e.origin == fromAPI {
			errs = append(errs, fmt.Errorf("policy %q: was loaded by the management API already, which can remove it", w.name()))
		}
		if !w.enabled {
			continue
		}
		for _, e := range m.sorted() {
			if e.origin != fromAPI || e.disabled || e.name == w.name() {
				continue
			}
			for _, kind := range e.wanted.converts() {
				if slices.Contains(w.converts(), kind) {
					errs = append(errs, convertsToo(w.name(), e.name, kind))
				}
			}
		}
	}
	return errs
}

// declarePolicy declares a policy of the file or of the cluster, and begins to load it unless it is
// unchanged. mu must be held.
func (m *Manager) declarePolicy(w *wanted, origin string, place int) *entry {
	name, key := w.name(), w.key()
	e := m.entries[name]
	if e == nil {
		e = m.entry(name, origin)
	}
	e.origin, e.place = origin, place
	// Objects of the cluster change often, and what could not be loaded is loaded again in any case.
	if e.key == key && (e.err == nil || origin == fromCluster && e.passing) {
		return e
	}
	e.declared, e.key, e.override = w, key, nil
	e.wanted = w
	if o, ok := m.overrides[name]; ok && o.Declared == key {
		e.override = &o
		if o.Spec != nil {
			e.wanted = &wanted{plugin: o.Spec, pinned: m.pin(o.Digest, nil, nil), enabled: w.enabled}
		}
	}
	e.disabled = e.disabled || !m.enables(e, w)
	e.cancel()
	ctx, cancel := context.WithCancel(m.ctx)
	tried := make(chan struct{})
	e.cancel, e.tried = cancel, tried
	version := e.wanted
	m.working.Go(func() {
		defer close(tried)
		if version != w {
			_, err := m.attempt(ctx, e, version)
			if err == nil || errors.Is(err, errSuperseded) {
				return
			}
			m.log(slog.LevelError, "the version chosen by the API cannot be loaded: the declared one is", "policy", name, "err", err)
			m.mu.Lock()
			replaced := e.wanted != version
			if !replaced {
				e.wanted, e.override = w, e.override.withoutVersion()
			}
			m.mu.Unlock()
			if replaced {
				return
			}
		}
		_ = m.bring(ctx, e, w) // It is the error of the entry.
	})
	return e
}

// settle waits until the policies of a declaration were loaded or refused, and removes those that it
// does not have, unless there is a newer one by then.
func (m *Manager) settle(d *declaration, tried []<-chan struct{}) {
	defer close(d.settled)
	for _, done := range tried {
		select {
		case <-done:
		case <-m.ctx.Done():
			d.err = fmt.Errorf("manage policies: %w", host.ErrClosed)
			return
		}
	}
	var gone []admission.Policy
	pruned, again := false, false
	m.mu.Lock()
	if (m.newest == d || m.newestOfCluster == d) && !m.closed {
		for name, e := range m.entries {
			switch {
			case e.origin != d.origin || d.names[name]:
			case d.origin == fromFile && m.takeOver(e):
				again = true
			default:
				gone = append(gone, m.drop(e))
			}
		}
		if d.origin == fromFile {
			m.applied = true
		} else {
			m.clusterApplied = true
		}
		pruned = m.pruneOverrides()
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if e := m.entries[name]; e != nil && e.err != nil {
			errs = append(errs, e.err)
		}
	}
	closed := m.closed
	m.mu.Unlock()
	d.err = errors.Join(errs...)
	if closed {
		return
	}
	m.publish(gone...)
	if pruned {
		m.keepOverrides()
	}
	if again {
		m.retryCluster()
	}
}

// retryFile applies a file that was waiting for the name of a removed policy.
func (m *Manager) retryFile() {
	m.mu.Lock()
	f := m.waiting
	m.mu.Unlock()
	if f == nil {
		return
	}
	// A newer file may have come meanwhile.
	if d, err := m.declareIf(f, func() bool { return m.waiting == f }); !errors.Is(err, errSuperseded) {
		m.told(d, err)
	}
}

// told logs the result of applying a configuration, when it is known.
func (m *Manager) told(d *declaration, refused error) {
	if refused != nil {
		m.log(slog.LevelError, "configuration is refused", "err", refused)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.working.Go(func() {
		<-d.settled
		if d.err != nil {
			m.log(slog.LevelError, "configuration is applied, and some policies cannot be loaded", "err", d.err)
		} else {
			m.log(slog.LevelInfo, "configuration is applied")
		}
	})
}

// FollowFile applies a configuration file, and applies it again whenever it changes, until ctx
// ends or the Manager is closed. A file that cannot be read or is refused leaves the policies unchanged, also if it does not
// exist at first. FollowFile returns the first error; later ones are logged.
//
// Replace the file by renaming another over it. A file that is written in place is read once it has
// not changed for a quarter of a second. A file that stays cut off between two policies for longer
// counts as one with fewer policies.
func (m *Manager) FollowFile(ctx context.Context, path string) error {
	m.ExpectFile()
	source := serving.NewFile(path)
	declare := func(data []byte) (*declaration, error) {
		f, err := ParseFile(data)
		if err == nil {
			return m.declare(f)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if closed := m.closedErr(); closed != nil {
			return nil, closed
		}
		m.waiting, m.fileErr = nil, err
		return nil, err
	}
	applied := ""
	var d *declaration
	data, first := source.Fetch(ctx)
	if first != nil {
		first = fmt.Errorf("read configuration: %w", first)
		m.mu.Lock()
		if closed := m.closedErr(); closed != nil {
			first = closed
		}
		m.fileErr = first
		m.mu.Unlock()
	} else {
		applied = digestOf(data)
		d, first = declare(data)
	}
	// Changes are followed at once: a slow module must not delay a newer file.
	m.followFrom(ctx, path, source, applied, declare)
	if d != nil {
		first = d.wait(ctx)
	}
	return first
}

// followFrom follows a configuration file in the background. applied is the digest of the version
// that was read.
func (m *Manager) followFrom(ctx context.Context, path string, source host.Source, applied string, declare func([]byte) (*declaration, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.working.Go(func() {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(m.ctx, stop)()
		err := host.Follow(ctx, source, host.FollowOptions{
			Interval: m.cfg.Interval, Applied: applied,
			Failed: func(err error) { m.log(slog.LevelError, "follow configuration", "file", path, "err", err) },
		}, func(_ context.Context, data []byte, _ string) error {
			m.told(declare(data))
			// Follow would not return to the file before a refused one, which may differ from the
			// one in service.
			return nil
		})
		if err != nil {
			m.log(slog.LevelError, "follow configuration", "file", path, "err", err)
		}
	})
}

// ExpectFile makes [Manager.Ready] wait for a configuration file that FollowFile is about to apply.
// Fetching and compiling its modules may take long, and a server may begin to listen meanwhile.
func (m *Manager) ExpectFile() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wantsFile = true
}
