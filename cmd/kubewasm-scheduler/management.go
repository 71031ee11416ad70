package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/management"
	kube "github.com/kubewasm/kubewasm/sched/kube137" // Of the minor that the module file pins.
)

// loadedPlugins are the plugins of all profiles.
type loadedPlugins struct {
	// configured are the plugins of the configuration.
	configured []configuredPlugin
	// cluster has those of the cluster, nil if there are none.
	cluster *clusterPlugins

	mu  sync.Mutex
	all []kube.Plugin
}

// factory returns a factory that remembers what another one makes.
func (l *loadedPlugins) factory(of kube.Factory) kube.Factory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		made, err := of(ctx, args, handle)
		if plugin, ok := made.(kube.Plugin); ok && err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.all = append(l.all, plugin)
		}
		return made, err
	}
}

// members returns the plugins, as PROFILE/NAME.
func (l *loadedPlugins) members() (members []management.Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.all {
		guest := p.Guest()
		if guest == nil {
			continue // There is no object for it now.
		}
		m := management.Member{Name: guest.Stats().Label, Guest: guest, Plugin: p}
		if i := slices.IndexFunc(l.configured, func(c configuredPlugin) bool { return c.profile+"/"+c.name == m.Name }); i >= 0 {
			m.Mode, m.FailurePolicy = l.configured[i].mode, l.configured[i].failurePolicy
			if l.configured[i].cluster {
				m.Mode, m.FailurePolicy, _ = l.cluster.settings(l.configured[i].profile, l.configured[i].name)
			}
		}
		members = append(members, m)
	}
	slices.SortStableFunc(members, func(a, b management.Member) int { return cmp.Compare(a.Name, b.Name) })
	return members
}

// manage serves the management routes that a file configures until stop is called.
func manage(file string, plugins *loadedPlugins, logger *slog.Logger) (stop func(), err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --plugin-management: %w", err)
	}
	cfg := new(management.Config)
	if err := configfile.YAML(text, cfg); err != nil {
		return nil, fmt.Errorf("--plugin-management: %s: %w", file, err)
	}
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("--plugin-management: %s: %w", file, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := cfg.Run(ctx, plugins.members, logger); err != nil && ctx.Err() == nil {
			logger.Error("the management routes are not served", "err", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}
