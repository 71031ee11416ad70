package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
)

// profileRecording repeats the calls of a recording on a module, and returns their profile. plugin
// selects those of one plugin, unless it is empty.
func (t *tool) profileRecording(ctx context.Context, path, plugin string, from *pullFlags, argument string) (_ *profile.Profile, err error) {
	recorded, err := recording.Open(path)
	if err != nil {
		return nil, err
	}
	for _, problem := range recorded.Problems() {
		t.warn(problem)
	}
	_, module, err := t.module(ctx, argument, from)
	if err != nil {
		return nil, err
	}
	about, err := host.Inspect(module)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", argument, err)
	}
	rt, err := t.newRuntime()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	p := &recordingProfile{tool: t, rt: rt, recorded: recorded, module: module, digest: about.Digest(), players: map[*recording.Version]*profiled{}}
	defer func() {
		for _, played := range p.players {
			err = errors.Join(err, played.player.Close(context.WithoutCancel(ctx)))
		}
	}()
	for _, s := range recorded.Sequences() {
		switch {
		case plugin != "" && s.Version.Plugin != plugin:
		default:
			p.skipped += s.Lost()
			if err := p.sequence(ctx, s); err != nil {
				return nil, fmt.Errorf("profile %s: %w", argument, err)
			}
		}
	}
	if p.calls == 0 {
		return nil, fmt.Errorf("profile %s: %s has no calls to repeat", argument, path)
	}
	if p.skipped != 0 {
		fmt.Fprintf(t.err, "kubewasm: warning: %d calls are left out, since what was before them is not in the recording\n", p.skipped)
	}
	if p.missing != 0 {
		fmt.Fprintf(t.err, "kubewasm: warning: %d of %d calls asked for what the recording does not have, and ended there\n", p.missing, p.calls)
	}
	return p.merge(), nil
}

// recordingProfile is the profile of a recording.
type recordingProfile struct {
	tool     *tool
	rt       *host.Runtime
	recorded *recording.Recording
	module   []byte
	digest   string
	players  map[*recording.Version]*profiled
	// calls is the number of repeated calls. missing is the number of those whose questions were
	// not recorded. skipped is the number of calls that were not repeated.
	calls, missing, skipped int
}

// profiled repeats the calls of one configuration of a plugin.
type profiled struct {
	player   *replay.Player
	profiler *host.Profiler
}

// of returns the profiled of a version, which repeats its calls.
func (p *recordingProfile) of(ctx context.Context, v *recording.Version) (*profiled, error) {
	if played := p.players[v]; played != nil {
		return played, nil
	}
	start, err := p.recorded.Start(v)
	if err != nil {
		return nil, err
	}
	played := &profiled{profiler: &host.Profiler{}}
	played.player, err = replay.Load(ctx, p.rt, v, start, p.module, replay.Options{
		Configure: func(cfg *host.Config) { cfg.Profiler = played.profiler },
		Closely:   v.SHA256 == p.digest,
	})
	if err != nil {
		return nil, err
	}
	p.players[v] = played
	played.profiler.Reset()
	return played, nil
}

// sequence repeats the calls of a sequence.
func (p *recordingProfile) sequence(ctx context.Context, s *recording.Sequence) error {
	played, err := p.of(ctx, s.Version)
	if err != nil {
		return err
	}
	started, err := played.player.Begin(ctx, s)
	if err != nil {
		return err
	}
	n := 0
	for c, err := range s.Calls() {
		if errors.Is(err, recording.ErrMalformed) {
			p.skipped += s.Len() - n
			p.tool.warn(err)
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if n++; n <= len(started) {
			continue
		}
		got, err := played.player.Play(ctx, c)
		if err != nil {
			return err
		}
		p.calls++
		if got.Missing != "" {
			p.missing++
		}
	}
	return nil
}

// merge returns the profiles of all configurations as one.
func (p *recordingProfile) merge() *profile.Profile {
	var all *profile.Profile
	for _, v := range p.recorded.Versions() {
		played := p.players[v]
		if played == nil {
			continue
		}
		one := played.profiler.Profile()
		if all == nil {
			all = one
			continue
		}
		all.Calls += one.Calls
		all.Samples = append(all.Samples, one.Samples...)
	}
	return all
}
