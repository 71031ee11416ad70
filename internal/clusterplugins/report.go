package clusterplugins

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/cut"
)

const (
	// reportInterval is the interval at which states are compared, and spacing the shortest time
	// between two writes, which is spacingShare times the duration of the last one if that is longer:
	// an API server that is slow since thousands of nodes report gets fewer reports with more in each.
	// A version on trial that fails is reported at once: it is in service until it is rolled back.
	reportInterval, spacing, spacingShare = time.Second, 2 * time.Second, 3
	// rewrite is the time after which a report is written again, in case that somebody has changed it.
	rewrite = 30 * time.Minute
	// maxMessage bounds a message, and maxReport a report, in bytes.
	maxMessage, maxReport = 1024, 1 << 20
	// writeTime bounds the time of a write: where thousands are in a queue, those that give up have
	// been in vain. maxWait bounds the time after one that failed.
	writeTime, maxWait = 30 * time.Second, time.Minute
)

// Refused is the state of an object that the process does not take.
const Refused = "Refused"

// State is the state of a plugin in this process: see PluginState of the API.
type State struct {
	Kind       string     `json:"kind"`
	Namespace  string     `json:"namespace,omitempty"`
	Name       string     `json:"name"`
	UID        string     `json:"uid,omitempty"`
	Webhooks   []string   `json:"webhooks,omitempty"`
	Generation int64      `json:"generation"`
	Revision   int64      `json:"revision,omitempty"`
	State      string     `json:"state"`
	Since      *time.Time `json:"since,omitempty"`
	Message    string     `json:"message,omitempty"`
	Digest     string     `json:"digest,omitempty"`
	Reference  string     `json:"reference,omitempty"`
	Trial      int64      `json:"trial,omitempty"`
	Failing    string     `json:"failing,omitempty"`
}

// Process is the process that reports: its Pod, by the variables POD_NAME, POD_NAMESPACE, POD_UID
// and NODE_NAME.
type Process struct {
	Component, Version, Engine string
	Name, Namespace, UID, Node string
	// Schedulers are the names of the profiles of a scheduler.
	Schedulers []string
	// Secrets are masked in the messages of reports. It may be nil.
	Secrets *Secrets
}

// ThisProcess returns the process with its Pod. Without POD_NAME the name is that of the machine, and
// without POD_NAMESPACE the namespace is that of the service account, or default.
func ThisProcess(component, version, engine string) Process {
	p := Process{Component: component, Version: version, Engine: engine, Name: os.Getenv("POD_NAME"), Namespace: os.Getenv("POD_NAMESPACE"), UID: os.Getenv("POD_UID"), Node: os.Getenv("NODE_NAME")}
	if p.Name == "" {
		name, _ := os.Hostname()
		p.Name = strings.ToLower(name)
	}
	if p.Namespace == "" {
		namespace, _ := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		p.Namespace = strings.TrimSpace(string(namespace))
	}
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	return p
}

// Report writes the PluginReport of a process until ctx ends, whenever states returns something else.
// It returns nil while the objects are unknown.
func Report(ctx context.Context, client *apiserver.Client, of Process, states func() []State, logger *slog.Logger) {
	var last []byte
	var written, next time.Time
	failures, failure := 0, ""
	told := map[string]bool{}
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for {
		now := time.Now()
		known := states()
		failed, more := map[string]bool{}, false
		for i := range known {
			if s := &known[i]; s.Failing != "" {
				trial := fmt.Sprint(s.Kind, "/", s.Namespace, "/", s.Name, "/", s.Trial)
				failed[trial], more = true, more || !told[trial]
			}
		}
		due := !now.Before(next) || failures == 0 && more
		if report := of.report(known); known != nil && due && (!bytes.Equal(report, last) || now.Sub(written) > rewrite) {
			if err := of.write(ctx, client, report); err == nil {
				last, written, next, failures, failure, told = report, now, time.Now().Add(max(spacing, spacingShare*time.Since(now))), 0, "", failed
			} else if ctx.Err() == nil {
				wait := min(maxWait, spacing<<min(failures, 10))
				failures++
				next = now.Add(wait/2 + rand.N(wait)) //nolint:gosec // It spreads load.
				if text := err.Error(); text != failure {
					failure = text
					logger.Warn("the report on the plugins is not written", "err", err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// report returns the text of a report. If it is too long, it has shorter messages or only some of the
// plugins.
func (p *Process) report(states []State) []byte {
	type owner struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
	}
	metadata := map[string]any{"name": p.Name, "namespace": p.Namespace, "labels": map[string]string{"app.kubernetes.io/component": strings.TrimPrefix(p.Component, "kubewasm-")}}
	if p.UID != "" {
		metadata["ownerReferences"] = []owner{{"v1", "Pod", p.Name, p.UID}}
	}
	serving := 0
	for i := range states {
		if states[i].State == string(host.Serving) {
			serving++
		}
	}
	states = slices.Clone(states)
	for i := range states {
		states[i].Message, states[i].Failing = p.Secrets.Mask(states[i].Message), p.Secrets.Mask(states[i].Failing)
	}
	short := append([]State{}, states...) // Not null.
	for _, limit := range []int{maxMessage, 100, 0} {
		for i := range short {
			short[i].Message = cut.Marked(states[i].Message, limit)
			if limit == 0 {
				short[i].Message = ""
			}
		}
		for {
			report := map[string]any{
				"apiVersion": "kubewasm.dev/v1alpha1", "kind": "PluginReport", "metadata": metadata,
				"component": p.Component, "version": p.Version, "node": p.Node, "engine": p.Engine,
				"serving": serving, "others": len(states) - serving, "plugins": short,
			}
			if p.UID == "" {
				report["renewed"] = time.Now().UTC().Truncate(rewrite)
			}
			if p.Schedulers != nil {
				report["schedulers"] = p.Schedulers
			}
			text, err := json.Marshal(report)
			if err != nil || len(text) <= maxReport {
				return text // There is no error of these types.
			}
			if limit != 0 {
				break
			}
			short = short[:len(short)/2]
		}
	}
	return nil
}

// write applies a report.
func (p *Process) write(ctx context.Context, client *apiserver.Client, report []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	path := groupVersion + "/namespaces/" + url.PathEscape(p.Namespace) + "/pluginreports/" + url.PathEscape(p.Name) + "?fieldManager=kubewasm&force=true"
	resp, err := client.Do(ctx, http.MethodPatch, path, "application/apply-patch+yaml", report)
	if err != nil {
		return fmt.Errorf("write the PluginReport %s/%s: %w", p.Namespace, p.Name, err)
	}
	return resp.Body.Close()
}
