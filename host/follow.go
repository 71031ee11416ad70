package host

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Watcher is a Source that notices when its module may have changed. A [File]
// watches the directories of the file and of the symbolic links that lead to it. So
// it notices writes, renames, links that change, and files that are deleted and
// created again.
type Watcher interface {
	Source
	// Watch calls changed when it has begun to watch and from then on whenever
	// the module may have changed, until ctx ends, which is no error. It returns
	// earlier only with an error, if it cannot watch. It releases everything
	// when it returns.
	//
	// The calls come one after the other and return soon. They are hints: many
	// may be without cause, and one may stand for several changes. A Fetch that
	// begins in or after the last call must see the last change. A network file
	// system may report no changes at all, so a caller also polls at an
	// interval, as [Follow] does.
	Watch(ctx context.Context, changed func()) error
}

// ConditionalSource is a Source that tells its versions apart without fetching them: by the digest
// of a tag in a registry, for example.
type ConditionalSource interface {
	Source
	// FetchUnless returns the module with its revision, or no module if its revision still equals
	// the given one, which is "" or from an earlier call. Equal revisions are of the same module.
	// FetchUnless contacts the origin and no cache, so an origin that cannot be reached is an
	// error.
	FetchUnless(ctx context.Context, revision string) (module []byte, current string, err error)
}

// FollowOptions configure the following of a source. The zero value is the default.
type FollowOptions struct {
	// Interval is the longest time between two checks of the source. It finds
	// changes in sources that cannot be watched, and restarts a watch that has
	// failed. Default 30 s.
	Interval time.Duration
	// Applied is the SHA-256, in lower-case hexadecimal, of the module that is
	// in use when following begins; empty if there is none.
	Applied string
	// Refused is the SHA-256 of a module that was tried before and could not be loaded; empty
	// if there is none. It is not tried again.
	Refused string
	// Failed is called with each error: the module cannot be fetched, applied
	// or watched. Errors have no other effect. It is called by the goroutine of
	// Follow; nil drops the errors.
	Failed func(error)
	// Checked is called after each check in which the source could be read, with the SHA-256 of its
	// module, even of one that was applied or refused before. It is called by the goroutine of
	// Follow; nil drops the checks.
	Checked func(sha256 string)
}

// DefaultFollowInterval is the default of FollowOptions.Interval.
const DefaultFollowInterval = 30 * time.Second

// Follow passes each new module of a source to apply, until ctx ends, which is
// no error. It checks the source at once, at each hint of a [Watcher], and at an
// interval. apply gets the module, which it must not change, with its SHA-256 in
// lower-case hexadecimal. It runs in the goroutine of Follow, one call at a
// time: changes during a call are checked after it.
//
// A module is skipped if it is the last that apply accepted or refused: a broken module is tried
// once, not at every check. One that did not fit into memory, by [ErrMemory], is tried again. The module of a [ConditionalSource] is not fetched as long as its
// revision is the same. A source that keeps modules is notified of each module that apply accepts.
//
// It is an error to follow a source that needs a digest: a pinned module does
// not change.
func Follow(ctx context.Context, source Source, opts FollowOptions, apply func(ctx context.Context, module []byte, sha256 string) error) error {
	if err := checkSource(source, ""); err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	if opts.Interval < 0 {
		return fmt.Errorf("follow %s: interval is %s, less than 0", source, opts.Interval)
	}
	follow(ctx, source, opts, apply)
	return nil
}

// follow acts as Follow with valid options, also for a source that needs a digest.
func follow(ctx context.Context, source Source, opts FollowOptions, apply func(ctx context.Context, module []byte, sha256 string) error) {
	if opts.Interval == 0 {
		opts.Interval = DefaultFollowInterval
	}
	f := follower{source: source, apply: apply, applied: opts.Applied, refused: opts.Refused, failed: opts.Failed, checked: opts.Checked, hints: make(chan struct{}, 1)}
	f.follow(ctx, opts.Interval)
}

// Follow swaps the plugin to each new module of the source of its configuration, by [Plugin.Swap],
// until ctx ends. If a new version fails, opts.Failed is called with the error and the running
// version goes on serving. opts.Applied is ignored: it is the running version. If
// ModuleConfig.SHA256 pins the module, Follow returns at once. With ModuleConfig.Follow the plugin
// follows by itself.
func (p *Plugin) Follow(ctx context.Context, opts FollowOptions) error {
	if p.cfg.Module.SHA256 != "" {
		return nil
	}
	if opts.Interval < 0 {
		return fmt.Errorf("plugin %q: follow %s: interval is %s, less than 0", p.cfg.Name, p.source, opts.Interval)
	}
	p.followSource(ctx, opts)
	return nil
}

// follow keeps the declared module in service until ctx, which Close ends, has ended: that of the
// source if ModuleConfig.Follow is set, and otherwise the one that could not be loaded at first.
// refused is the digest of a module that was refused already.
func (p *Plugin) follow(ctx context.Context, refused string) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	opts := FollowOptions{Interval: p.runtime.sources.all().Interval, Refused: refused}
	opts.Checked = func(string) {
		if state, _ := p.State(); state == Serving && !p.cfg.Module.Follow {
			stop()
		}
	}
	p.followSource(ctx, opts)
}

// followSource implements Follow, and keeps the state of the plugin.
func (p *Plugin) followSource(ctx context.Context, opts FollowOptions) {
	failed, checked := opts.Failed, opts.Checked
	opts.Applied = p.Digest()
	opts.Failed = func(err error) {
		if p.failed(err); failed != nil {
			failed(err)
		}
	}
	opts.Checked = func(sha256 string) {
		if p.turn(ctx) == nil { // A rollback in between would become Serving.
			if sha256 == p.Digest() {
				p.became(Serving, nil)
			}
			<-p.swapping
		}
		if checked != nil {
			checked(sha256)
		}
	}
	follow(ctx, p.source, opts, func(ctx context.Context, module []byte, _ string) error {
		return p.Swap(ctx, Fetched(p.source, module), p.cfg.Module.SHA256)
	})
}

type follower struct {
	source Source
	apply  func(ctx context.Context, module []byte, sha256 string) error
	failed func(error)
	// checked is called with the digest of each module that was read.
	checked func(sha256 string)
	// hints has one value while a change has not been checked.
	hints chan struct{}
	// applied and refused are the digests of the last modules that apply accepted and refused.
	applied, refused string
	// revision is that of the last module that apply accepted or refused; empty if the source has
	// none.
	revision string
	// last is the digest of the module that was read last.
	last string
	// unwatched is the last error of a watch.
	unwatched string
}

func (f *follower) follow(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	watching := f.watch(ctx)
	for f.look(ctx); ctx.Err() == nil; f.look(ctx) {
		select {
		case <-ctx.Done():
		case <-f.hints:
		case <-tick.C:
			if watching == nil {
				watching = f.watch(ctx)
			}
		case err := <-watching:
			watching = nil
			if text := err.Error(); text != f.unwatched { // It is tried again with each tick.
				f.unwatched = text
				f.report(ctx, fmt.Errorf("watch %s: %w", f.source, err))
			}
		}
	}
	if watching != nil {
		<-watching
	}
}

// watch turns the hints of the source into values of hints, and returns a
// channel for the error that ends the watch; nil if the source is no Watcher.
func (f *follower) watch(ctx context.Context) <-chan error {
	watcher, ok := f.source.(Watcher)
	if !ok {
		return nil
	}
	ended := make(chan error, 1)
	go func() {
		err := watcher.Watch(ctx, func() {
			select {
			case f.hints <- struct{}{}:
			default:
			}
		})
		if err == nil {
			err = errors.New("ended without an error")
		}
		ended <- err
	}()
	return ended
}

// look fetches the module of the source and applies it if it is new.
func (f *follower) look(ctx context.Context) {
	module, revision, err := f.fetch(ctx)
	if err != nil {
		f.report(ctx, fmt.Errorf("fetch module of %s: %w", f.source, err))
		return
	}
	if module != nil || revision == "" {
		f.last = digestOf(module)
	}
	if ctx.Err() != nil {
		return
	}
	if f.checked != nil {
		defer f.checked(f.last)
	}
	digest := f.last
	f.revision = revision
	if digest == f.applied {
		if module != nil {
			Keep(f.source, digest) // The same module by another manifest.
		}
		return
	}
	if digest == f.refused {
		return
	}
	if err := f.apply(ctx, module, digest); err != nil {
		if errors.Is(err, ErrMemory) {
			f.revision = "" // There may be memory the next time, for a module that is fetched again.
		} else {
			f.refused = digest
		}
		f.report(ctx, err)
		return
	}
	f.applied = digest
	Keep(f.source, digest)
}

// fetch returns the module of the source, none if its revision is that of the last one.
func (f *follower) fetch(ctx context.Context) (module []byte, revision string, err error) {
	if c, ok := f.source.(ConditionalSource); ok {
		return c.FetchUnless(ctx, f.revision)
	}
	module, err = f.source.Fetch(ctx)
	return module, "", err
}

// report calls Failed with an error, unless it is the end of ctx.
func (f *follower) report(ctx context.Context, err error) {
	if f.failed != nil && ctx.Err() == nil {
		f.failed(err)
	}
}
