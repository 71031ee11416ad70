package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/admission/admissiontest"
)

const (
	old     = "stable.example.com/v1beta1"
	current = "stable.example.com/v1"
)

func TestVersions(t *testing.T) {
	admissiontest.Each(t, versions{}, func(t *testing.T, p *admissiontest.Plugin) {
		for _, test := range []struct{ name, manifest, desired, want string }{
			{
				"v1beta1 to v1",
				`{apiVersion: stable.example.com/v1beta1, kind: CronTab, metadata: {name: backup, namespace: shop, uid: u1, labels: {a: b}}, spec: {hostPort: "db.shop:5432", cronSpec: "0 3 * * *", image: backup:1}}`,
				current,
				`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"labels":{"a":"b"},"name":"backup","namespace":"shop","uid":"u1"},"spec":{"host":"db.shop","image":"backup:1","port":5432,"schedule":{"cron":"0 3 * * *"}}}`,
			},
			{
				"v1 to v1beta1, which has no field for the time zone",
				`{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: backup}, spec: {host: db, port: 80, schedule: {cron: "@daily", timeZone: Europe/Berlin}, suspend: false}}`,
				old,
				`{"apiVersion":"stable.example.com/v1beta1","kind":"CronTab","metadata":{"annotations":{"stable.example.com/suspend":"false","stable.example.com/time-zone":"Europe/Berlin"},"name":"backup"},"spec":{"cronSpec":"@daily","hostPort":"db:80"}}`,
			},
			{
				"v1beta1 with what only v1 has a field for, and another annotation",
				`{apiVersion: stable.example.com/v1beta1, kind: CronTab, metadata: {name: backup, annotations: {x: other, stable.example.com/suspend: "true"}}, spec: {hostPort: "db:80", cronSpec: "@daily"}}`,
				current,
				`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"annotations":{"x":"other"},"name":"backup"},"spec":{"host":"db","port":80,"schedule":{"cron":"@daily"},"suspend":true}}`,
			},
		} {
			t.Run(test.name, func(t *testing.T) {
				if got := p.RoundTrip(t, test.manifest, test.desired); got != test.want {
					t.Errorf("the object is\n%s\nwant\n%s", got, test.want)
				}
			})
		}
		for manifest, want := range map[string]string{
			`{apiVersion: stable.example.com/v1beta1, kind: CronTab, metadata: {name: a}, spec: {hostPort: db}}`:       `spec.hostPort: "db" has no port`,
			`{apiVersion: stable.example.com/v1beta1, kind: CronTab, metadata: {name: a}, spec: {hostPort: "db:all"}}`: `spec.hostPort: port "all" is no number up to 65535`,
			`{apiVersion: stable.example.com/v2, kind: CronTab, metadata: {name: a}}`:                                  `the plugin does not convert CronTab of stable.example.com from v2 to v1`,
			`{apiVersion: stable.example.com/v1beta1, kind: Other, metadata: {name: a}}`:                               `the plugin does not convert Other of stable.example.com from v1beta1 to v1`,
		} {
			if got, err := p.Convert(t, manifest, current); err == nil || err.Error() != want {
				t.Errorf("%s is converted to %s, %v; want %s", manifest, got, err, want)
			}
		}
	})
}
