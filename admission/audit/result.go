package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Outcome is the kind of a finding, named as in OpenReports.
type Outcome string

// The outcomes of findings.
const (
	// Denied means that the policy would not let the object be created.
	Denied Outcome = "fail"
	// Patched means that the policy would change the object: it differs from the object that would
	// be created now.
	Patched Outcome = "warn"
	// Failed means that the policy has no verdict.
	Failed Outcome = "error"
)

var outcomes = []Outcome{Denied, Patched, Failed}

// Result is the result of a run.
type Result struct {
	Start    time.Time       `json:"start"`
	Duration metav1.Duration `json:"duration"`
	// Objects is the number of objects with results of policies.
	Objects int `json:"objects"`
	// Seen is the number of objects that the run has read. Asked is the number of calls of
	// policies. Reused is the number of results of earlier runs that made a call about such an
	// object unnecessary.
	Seen   int `json:"seen"`
	Asked  int `json:"asked"`
	Reused int `json:"reused"`
	// Requests is the number of requests to the API server, without the requests of policies and of
	// reports.
	Requests int `json:"requests"`
	// Policies are in the order of the engine.
	Policies []PolicyResult `json:"policies"`
	// Findings are sorted by namespace, kind, name and policy.
	Findings []Finding `json:"findings"`
	// Errors describes the resources that could not be listed, and so were not audited.
	Errors []string `json:"errors,omitempty"`

	// passed counts passing results by namespace.
	passed map[string]int
}

// PolicyResult is the result of a policy over all objects.
type PolicyResult struct {
	Name string    `json:"name"`
	Mode host.Mode `json:"mode"`
	// Passed, Denied, Patched and Failed count objects.
	Passed  int `json:"passed"`
	Denied  int `json:"denied"`
	Patched int `json:"patched"`
	Failed  int `json:"failed"`
	// Skipped is the reason that the policy was asked about nothing, empty if it was asked.
	Skipped string `json:"skipped,omitempty"`
	// Unmatched reports whether the policy was skipped because its rules match no existing
	// resource. The rules may be misspelt, as in resources: [pod]. In a review it is not set if the
	// rules seem right and another policy was asked.
	Unmatched bool `json:"unmatched,omitempty"`
	// Error is the reason that the policy has no verdict on any object, or none on some. It stands
	// for all those objects, which then have no separate findings.
	Error string `json:"error,omitempty"`
}

// Finding is an objection of a policy to an object.
type Finding struct {
	Policy string `json:"policy"`
	// Mode is the mode of the policy. A policy that monitors has findings as well.
	Mode    host.Mode `json:"mode"`
	Outcome Outcome   `json:"result"`
	// APIVersion, Kind, Namespace, Name and UID identify the object.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
	Message    string `json:"message"`
	// Code is the HTTP code of the denial, 0 if the policy sets none.
	Code int32 `json:"code,omitempty"`
	// Since is the time of the run that found it first.
	Since time.Time `json:"since"`
}

// Count returns the number of findings with an outcome.
func (r *Result) Count(o Outcome) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Outcome == o {
			n++
		}
	}
	return n
}

// Complete reports whether all policies have a verdict on every object that they apply to.
func (r *Result) Complete() bool {
	return len(r.Errors) == 0 && r.Count(Failed) == 0 && !slices.ContainsFunc(r.Policies, func(p PolicyResult) bool { return p.Error != "" })
}

// Unasked returns the names of the policies that were asked about nothing because their rules match
// no existing resource.
func (r *Result) Unasked() (names []string) {
	for _, p := range r.Policies {
		if p.Unmatched {
			names = append(names, p.Name)
		}
	}
	return names
}

// fill fills the result from the state of the targets.
func (r *run) fill(result *Result, all []*target) {
	result.Seen, result.Asked, result.Reused = int(r.objects.Load()), int(r.calls.Load()), int(r.reused.Load())
	result.Findings, result.passed = []Finding{}, map[string]int{}
	// Numbers of policies are dense, and a run has few.
	results, byID := make([]PolicyResult, len(r.policies)), map[uint32]int{}
	for i, p := range r.policies {
		results[i] = PolicyResult{Name: p.Name, Mode: p.Mode}
		switch {
		case p.failure != nil:
			results[i].Error = shorten(p.failure.Error())
		case p.skipped != nil:
			results[i].Skipped = p.skipped.Error()
			_, results[i].Unmatched = errors.AsType[*unmatchedError](p.skipped)
		default:
			byID[p.id] = i
		}
	}
	count := func(s *set, namespace string) {
		if s == nil {
			return
		}
		for _, id := range *s {
			if i, ok := byID[id]; ok {
				results[i].Passed++
				result.passed[namespace]++
			}
		}
	}
	for _, t := range all {
		k := r.state.resources[t.resource]
		if k == nil {
			continue
		}
		result.Objects += len(k.objects)
		for key, o := range k.objects {
			count(o.passed, key.namespace)
			count(o.volatile, key.namespace)
			for _, f := range o.findings {
				i, ok := byID[f.policy]
				if !ok {
					continue // The policy has another version now.
				}
				switch p := &results[i]; f.outcome {
				case Denied:
					p.Denied++
				case Patched:
					p.Patched++
				case Failed:
					p.Failed++
				}
				result.Findings = append(result.Findings, Finding{
					Policy: results[i].Name, Mode: results[i].Mode, Outcome: f.outcome,
					APIVersion: t.resource.GroupVersion().String(), Kind: t.kind, Namespace: key.namespace, Name: key.name,
					UID: f.uid, Message: f.message, Code: f.code, Since: time.Unix(f.since, 0).UTC(),
				})
			}
		}
	}
	for i, p := range r.policies {
		verdicts := results[i].Passed + results[i].Denied + results[i].Patched
		why := p.withoutVerdict(verdicts != 0)
		if why == "" {
			continue
		}
		if results[i].Error = why; verdicts == 0 {
			// A reason common to all objects is reported once.
			results[i].Failed = 0
			result.Findings = slices.DeleteFunc(result.Findings, func(f Finding) bool { return f.Policy == p.Name && f.Outcome == Failed })
		}
	}
	slices.SortFunc(result.Findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name),
			strings.Compare(a.APIVersion, b.APIVersion), strings.Compare(a.Policy, b.Policy))
	})
	result.Policies = results
}

// withoutVerdict returns the reason that a policy has no verdict on any object, or was not asked
// about some, and empty otherwise. some reports whether it has verdicts, including verdicts of
// earlier runs.
func (p *asked) withoutVerdict(some bool) string {
	last, failures := p.last.Load(), p.failures.Load()
	switch left := p.calls.Load() - failures - p.answers.Load(); {
	case last == nil:
		return ""
	case left != 0 && !some:
		return shorten(fmt.Sprintf("it failed on each of %d objects and was not asked about %d more: %v", failures, left, *last))
	case left != 0:
		return shorten(fmt.Sprintf("it was not asked about %d objects: %v", left, *last))
	case failures > 1 && !some:
		return shorten(fmt.Sprintf("it failed on each of %d objects: %v", failures, *last))
	}
	return ""
}

// summaryOf returns a description of a JSON Patch without its values, since more people can read a
// report than a Secret.
func summaryOf(patch []byte) string {
	var parts []string
	for e := json.Array(patch); e.Next(); {
		var op, path string
		for m := json.Object(e.Value()); m.Next(); {
			switch m.Key() {
			case "op":
				op = m.Value().String()
			case "path":
				path = m.Value().String()
			}
		}
		parts = append(parts, op+" "+path)
	}
	return strings.Join(parts, ", ")
}

// causes returns the field errors of a denial that has no message.
func causes(e *admission.Evaluation) string {
	var parts []string
	for _, c := range e.Causes {
		text := c.Message
		if c.Field != "" {
			text = c.Field + ": " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// digestOf returns the digest of some texts.
func digestOf(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%q,", text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// WriteTable writes the findings as a table in readable form, and a line for each policy.
func (r *Result) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(r.Findings) != 0 {
		fmt.Fprintln(table, "NAMESPACE\tKIND\tNAME\tPOLICY\tRESULT\tMESSAGE")
		for i := range r.Findings {
			f := &r.Findings[i]
			foreign.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", cmp.Or(f.Namespace, "-"), f.Kind, cmp.Or(f.Name, "-"), f.Policy, f.Outcome, f.Message)
		}
		fmt.Fprintln(table)
	}
	// The columns of another table are as wide as it needs.
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(table, "POLICY\tMODE\tPASS\tFAIL\tWARN\tERROR\tNOTE")
	for i := range r.Policies {
		p := &r.Policies[i]
		foreign.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", p.Name, p.Mode, p.Passed, p.Denied, p.Patched, p.Failed, cmp.Or(p.Error, p.Skipped))
	}
	return table.Flush()
}
