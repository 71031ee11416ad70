package main

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/internal/crontabs"
	"github.com/kubewasm/kubewasm/host/service/servicetest"
)

// TestCustomResourcesOfGoTypes passes a custom resource of a Go type to a plugin, which reads it by
// a view that is generated from its CustomResourceDefinition.
func TestCustomResourcesOfGoTypes(t *testing.T) {
	servicetest.Each(t, &plugin{}, crontabs.LoadCronTabs, func(t *testing.T, p *servicetest.Plugin[*crontabs.CronTabs]) {
		c := p.Configure(t, `schedule: "@daily"`)
		req := servicetest.Read[crontabs.DueRequest](t, `
first: {metadata: {name: a}, spec: {schedule: "@hourly", replicas: 1, containers: [{image: a:1}]}}
others:
- {metadata: {name: b}, spec: {schedule: "@daily", suspend: true, replicas: 1, containers: []}}
- metadata: {name: c, labels: {team: shop}}
  spec: {schedule: "@daily", replicas: 2, since: "2026-01-02T03:04:05Z", port: http, labels: {tenant: x}, containers: [{image: c:1}]}
- {metadata: {name: d}, spec: {schedule: "@daily", replicas: 1, containers: []}}`)
		check := func(image string, names ...string) {
			t.Helper()
			resp, err := c.Due(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, tab := range resp.Due {
				got = append(got, tab.Name)
			}
			if diff := cmp.Diff(names, got); diff != "" || resp.Image != image {
				t.Errorf("image is %s (-want +got):\n%s", resp.Image, diff)
			}
			if n := len(resp.Due); n > 0 && resp.Due[n-1] != req.Others[2] {
				t.Error("the object is not that of the request")
			}
		}
		check("c of shop runs c:1 on http since 2026-01-02T03:04:05Z for x", "c", "d")
		check("c of shop runs c:1 on http since 2026-01-02T03:04:05Z for x", "c", "d")
		// Another version of an object is another pointer.
		changed := req.Others[1].DeepCopy()
		changed.Spec.Containers[0].Image, changed.Labels["team"] = "c:2", "lab"
		req.Others[1] = changed
		check("c of lab runs c:2 on http since 2026-01-02T03:04:05Z for x", "c", "d")
		changed = req.First.DeepCopy()
		changed.Spec.Schedule = "@daily"
		req.First = changed
		check("a of  runs a:1 on 0 since  for ", "a", "c", "d")
	})
}

// A plugin finds nothing in a custom resource but the fields that its configuration names.
func TestReadsOfGoTypes(t *testing.T) {
	load := func(ctx context.Context, rt *host.Runtime, cfg service.Config) (*crontabs.CronTabs, error) {
		cfg.Reads = []string{"crontab.spec.schedule", "crontab.spec.containers.image", "crontab.spec.labels[tenant]"}
		return crontabs.LoadCronTabs(ctx, rt, cfg)
	}
	servicetest.Each(t, &plugin{}, load, func(t *testing.T, p *servicetest.Plugin[*crontabs.CronTabs]) {
		resp, err := p.Configure(t, `schedule: "@daily"`).Due(t.Context(), servicetest.Read[crontabs.DueRequest](t, `
first:
  metadata: {name: a, labels: {team: shop}}
  spec: {schedule: "@daily", suspend: true, since: "2026-01-02T03:04:05Z", port: http, labels: {tenant: x, other: z}, replicas: 1, containers: [{image: "a:1"}]}`))
		if want := "a of  runs a:1 on 0 since  for x"; err != nil || len(resp.Due) != 1 || resp.Image != want {
			t.Errorf("got %+v, %v, want %s", resp, err, want)
		}
	})
}

// A plugin looks custom resources up in the cluster of In, in the same way natively and as WebAssembly.
func TestLookUpsOfACluster(t *testing.T) {
	servicetest.Each(t, &plugin{}, crontabs.LoadCronTabs, func(t *testing.T, p *servicetest.Plugin[*crontabs.CronTabs]) {
		c := p.In(t, `
{apiVersion: example.com/v1, kind: Team, metadata: {name: shop}}
---
{apiVersion: example.com/v1, kind: Team, metadata: {name: lab, labels: {paused: "yes"}}}`).Configure(t, `{schedule: "@daily", teams: true}`)
		resp, err := c.Due(t.Context(), servicetest.Read[crontabs.DueRequest](t, `
first: {metadata: {name: a, labels: {team: lab}}, spec: {schedule: "@daily", replicas: 1, containers: []}}
others:
- {metadata: {name: b, labels: {team: shop}}, spec: {schedule: "@daily", replicas: 1, containers: []}}
- {metadata: {name: c, labels: {team: none}}, spec: {schedule: "@daily", replicas: 1, containers: []}}`))
		if err != nil || len(resp.Due) != 1 || resp.Due[0].Name != "b" {
			t.Errorf("got %+v, %v, want b", resp, err)
		}
	})
}
