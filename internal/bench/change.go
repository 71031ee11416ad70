package main

import (
	"fmt"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// benchChange measures what it costs to change a plugin without fear.
func benchChange(b *bench) error {
	return benchProfile(b)
}

// benchProfile measures a guest with a profiler beside the same without one.
func benchProfile(b *bench) error {
	nodeBytes, err := codec.Encode(node(1, 41))
	if err != nil {
		return err
	}
	podBytes, err := codec.Encode(pod())
	if err != nil {
		return err
	}
	inGo, err := guestbuild.Build(b.ctx, source("guests/filter"))
	if err != nil {
		return err
	}
	decoder, err := buildPlain(b.ctx, "guests/decode")
	if err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	for _, g := range []struct {
		name   string
		source host.Source
	}{
		{"Go guest", host.File(inGo)},
		{"Go guest that decodes the whole Node", host.Bytes(decoder)},
	} {
		var failed error
		version := uint32(1)
		var releases []func()
		run := func(profiler *host.Profiler) (func(int), error) {
			filter, release, err := loadProfiledFilter(b, rt, g.source, profiler, podBytes, nodeBytes)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", g.name, err)
			}
			releases = append(releases, release)
			return func(times int) {
				for range times {
					version = abi.NextVersion(version)
					if err := filter(version); err != nil {
						failed = err
					}
				}
			}, nil
		}
		profiled, err := run(&host.Profiler{})
		if err != nil {
			return err
		}
		plain, err := run(nil)
		if err != nil {
			return err
		}
		b.compare("profile of a "+g.name, target{ratio: 3}, profiled, "without a profile", plain)
		for _, release := range releases {
			release()
		}
		if failed != nil {
			return fmt.Errorf("%s: %w", g.name, failed)
		}
	}
	return nil
}
