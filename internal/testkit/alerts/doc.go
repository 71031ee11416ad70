// Command alerts writes the Grafana dashboards of charts/kubewasm/files, one for each program. Its
// tests hold the dashboards and the alerts beside them to docs/metrics.md, the alerts to their
// sections of docs/operating.md, and both to Prometheus's own parser and promtool.
package main

//go:generate go run .
