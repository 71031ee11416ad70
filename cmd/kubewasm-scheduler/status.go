package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/statusz"
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
		Declared: func() []statusz.Plugin { return loaded.listed(rt, o.plugins) },
	})
	server := &http.Server{
		Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	go func() { _ = server.Serve(l) }() // The error is that of Close.
	logger.Info("serving the state of plugins", "address", l.Addr().String())
	return func() { _ = server.Close() }, nil
}

// listed returns the configured plugins for a page, with the names of members.
func (l *loadedPlugins) listed(rt *host.Runtime, configured []configuredPlugin) []statusz.Plugin {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []statusz.Plugin
	for _, c := range configured {
		var args struct {
			Module host.ModuleConfig `json:"module"`
		}
		_ = json.Unmarshal(c.args, &args) // kube-scheduler reports arguments of another form.
		p := statusz.Plugin{Name: c.profile + "/" + c.name, Mode: cmp.Or(c.mode, host.Enforce), FailurePolicy: cmp.Or(c.failurePolicy, host.Fail), Reference: statusz.Reference(rt, args.Module)}
		for _, of := range l.all {
			if of.Guest().Stats().Label == p.Name {
				p.Guest = of.Guest()
				p.Background(of.Shadow(), of.Profile())
			}
		}
		if p.Guest == nil {
			p.State, p.Reason = host.Loading, "kube-scheduler has not made it: it starts, or no profile enables the plugin"
		}
		list = append(list, p)
	}
	return list
}
