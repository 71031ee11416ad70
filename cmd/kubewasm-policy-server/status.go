package main

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// status returns the page of the server.
func (o *options) status(rt *host.Runtime, server *policyserver.Server, collector *statusz.Collector) http.Handler {
	return &statusz.Config{
		Program: "kubewasm-policy-server", Version: program.ThisBuild().Short(), Runtime: rt, Collector: collector, Ready: server.Ready, Paths: []string{"/readiness", "/metrics"},
		Caches: map[string]string{"compiled": filepath.Join(o.downloadDir, "compiled"), "modules": filepath.Join(o.downloadDir, "modules")}, Private: statusz.Local,
		Declared: func() []statusz.Plugin { return declared(server) },
	}
}

// declared returns the policies for a page. A policy that fails denies.
func declared(server *policyserver.Server) []statusz.Plugin {
	var list []statusz.Plugin
	for _, s := range server.Policies() {
		p := statusz.Plugin{Name: s.ID, State: s.State, Reference: publicerr.Redact(s.Module), Digest: s.Digest, Mode: s.Mode, FailurePolicy: host.Fail}
		if s.State == host.Serving || s.State == host.Stale {
			p.Since = s.Since
		}
		if s.Group {
			p.Note = "a group"
		}
		if s.Err != nil {
			p.Reason = publicerr.Redact(s.Err.Error())
		}
		list = append(list, p)
	}
	return list
}

// refusals keeps the requests that policies have refused.
type refusals struct {
	policyserver.Observer
	collector *statusz.Collector
}

// Evaluated implements [policyserver.Observer].
func (r refusals) Evaluated(ctx context.Context, e *policyserver.Evaluated) {
	r.Observer.Evaluated(ctx, e)
	if e.Response == nil || e.Response.Allowed || e.Origin == "audit" {
		return
	}
	event := statusz.Event{Time: e.Start, Plugin: e.Policy, Event: serving.DeniedMessage}
	if q := e.Request; q != nil {
		event.User = q.UserInfo.Username
		event.Object = strings.Join([]string{string(q.Operation), q.Kind.Kind, strings.Trim(q.Namespace+"/"+q.Name, "/")}, " ")
	}
	if s := e.Response.Result; s != nil {
		event.Reason = s.Message
		if s.Details != nil {
			for _, cause := range s.Details.Causes {
				event.Reason += "; " + cause.Message
			}
		}
		event.Reason = e.Stain().Text(event.Reason)
	}
	r.collector.Refuse(event)
}
