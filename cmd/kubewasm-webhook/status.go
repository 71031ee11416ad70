package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/management"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
)

// status returns the page of the server.
func (o *options) status(rt *host.Runtime, manager *manage.Manager, collector *statusz.Collector) http.Handler {
	auth := management.Auth(o.auth())
	return &statusz.Config{
		Program: "kubewasm-webhook", Version: program.ThisBuild().Short(), Runtime: rt, Collector: collector, Ready: manager.Ready, ConfigErr: manager.ConfigErr, Paths: []string{"/healthz", "/readyz", "/metrics"},
		Caches:   map[string]string{"compiled": o.cacheDir, "state": o.stateDir},
		Private:  func(r *http.Request) bool { return statusz.Local(r) || auth.Allows(r) },
		Declared: func() []statusz.Plugin { return declared(manager) },
		Alarm: func() string {
			b := manager.BreakGlass()
			if b == nil {
				return ""
			}
			return "the policies only monitor until " + b.Until.UTC().Format(time.RFC3339) + ": " + b.Reason
		},
	}
}

// declared returns the policies for a page.
func declared(manager *manage.Manager) []statusz.Plugin {
	var list []statusz.Plugin
	for _, i := range manager.List() {
		p := statusz.Plugin{
			Name: i.Name, Version: i.Version, State: i.State, Reason: i.Error, Reference: i.Reference, Digest: i.Digest, Since: i.LoadedAt,
			Mode: i.Mode, FailurePolicy: i.FailurePolicy,
		}
		notes := i.Warnings
		if i.Override != "" {
			notes = append([]string{"the management API overrides the file: " + i.Override}, notes...)
		}
		if i.Group {
			notes = append([]string{"a group"}, notes...)
		}
		p.Note = strings.Join(notes, "\n")
		shadow, _ := manager.Shadow(i.Name) // nil with an error.
		p.Background(shadow, manager.Profile(i.Name))
		list = append(list, p)
	}
	return list
}
