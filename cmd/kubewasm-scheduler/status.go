package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/management"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// serveStatus serves the page of the scheduler at --plugin-status-address until stop is called.
func (o *options) serveStatus(rt *host.Runtime, loaded *loadedPlugins, collector *statusz.Collector, logger *slog.Logger) (stop func(), err error) {
	name, port, err := net.SplitHostPort(o.status)
	if err != nil {
		return nil, fmt.Errorf("--plugin-status-address: %w", err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(name, "127.0.0.1"), port))
	if err != nil {
		return nil, fmt.Errorf("--plugin-status-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(statusz.Path, &statusz.Config{
		Program: "kubewasm-scheduler", Version: program.ThisBuild().Short(), Runtime: rt, Collector: collector, Private: statusz.Local, Caches: map[string]string{"compiled": o.cacheDir},
		Declared: func() []statusz.Plugin { return o.listed(rt, loaded) },
	})
	server := &http.Server{
		Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	go func() { _ = server.Serve(l) }() // The error is that of Close.
	logger.Info("serving the state of plugins", "address", l.Addr().String())
	return func() { _ = server.Close() }, nil
}

// listed returns the configured plugins for a page, as PROFILE/NAME.
func (o *options) listed(rt *host.Runtime, loaded *loadedPlugins) []statusz.Plugin {
	members := loaded.members()
	var list []statusz.Plugin
	for _, c := range o.plugins {
		var args struct {
			Module host.ModuleConfig `json:"module"`
		}
		_ = json.Unmarshal(c.args, &args) // kube-scheduler reports arguments of another form.
		p := statusz.Plugin{
			Name: c.profile + "/" + c.name, Mode: cmp.Or(c.mode, host.Enforce), FailurePolicy: cmp.Or(c.failurePolicy, host.Fail), Reference: statusz.Reference(rt, args.Module),
			State: host.Loading, Reason: "kube-scheduler has not made it: it starts, or no profile enables the plugin",
		}
		if i := slices.IndexFunc(members, func(m management.Member) bool { return m.Name == p.Name }); i >= 0 {
			p.State, p.Reason = "", "" // Those of the guest.
			p.Background(members[i].Shadow(), members[i].Profile())
		}
		if c.cluster {
			mode, policy, err := loaded.cluster.settings(c.profile, c.name)
			p.Mode, p.FailurePolicy = cmp.Or(mode, host.Enforce), cmp.Or(policy, host.Fail)
			switch {
			case err == nil:
			case p.State == "":
				p.Note = "the newest SchedulerPlugin is not in service: " + publicerr.Redact(err.Error())
			default:
				p.State, p.Reason = host.Unavailable, publicerr.Redact(err.Error())
			}
		}
		list = append(list, p)
	}
	return list
}
