package audit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Report is a Report or a ClusterReport of openreports.io/v1alpha1, with the fields that an
// audit sets.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        ReportMetadata          `json:"metadata"`
	Source          string                  `json:"source"`
	Scope           *corev1.ObjectReference `json:"scope,omitempty"`
	Configuration   ReportConfiguration     `json:"configuration"`
	Summary         ReportSummary           `json:"summary"`
	Results         []ReportResult          `json:"results,omitempty"`
}

// ReportMetadata holds the fields of an ObjectMeta that an audit sets.
type ReportMetadata struct {
	Name            string                  `json:"name"`
	Namespace       string                  `json:"namespace,omitempty"`
	Labels          map[string]string       `json:"labels"`
	Annotations     map[string]string       `json:"annotations,omitempty"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitempty"`
}

// ReportConfiguration describes the part of all results in the report.
type ReportConfiguration struct {
	Limits ReportLimits `json:"limits"`
}

// ReportLimits are the limits of a report.
type ReportLimits struct {
	MaxResults   int       `json:"maxResults"`
	StatusFilter []Outcome `json:"statusFilter"`
}

// ReportSummary counts results. Passing results are in no report; the first report of a namespace
// counts them.
type ReportSummary struct {
	Pass  int `json:"pass"`
	Fail  int `json:"fail"`
	Warn  int `json:"warn"`
	Error int `json:"error"`
	Skip  int `json:"skip"`
}

// ReportResult is a finding.
type ReportResult struct {
	Policy     string                   `json:"policy"`
	Result     Outcome                  `json:"result"`
	Scored     bool                     `json:"scored"`
	Timestamp  metav1.Timestamp         `json:"timestamp"`
	Message    string                   `json:"message"`
	Resources  []corev1.ObjectReference `json:"resources,omitempty"`
	Properties map[string]string        `json:"properties,omitempty"`
}

const (
	reportVersion = reportGroup + "/v1alpha1"
	reportSource  = "kubewasm"
	// managedBy is the label of reports that names the field manager of their writer.
	managedBy = "app.kubernetes.io/managed-by"
	// digestAnnotation holds the digest of a report. A report with an equal digest is not written
	// again.
	digestAnnotation = "kubewasm.dev/digest"
	// DefaultReportName is the name of reports unless ReportConfig sets another.
	DefaultReportName = "kubewasm-audit"
	// defaultReportResults and reportBytes bound a report: etcd takes objects of 1.5 MiB.
	defaultReportResults = 1000
	reportBytes          = 768 << 10
)

// ReportConfig configures reports.
type ReportConfig struct {
	// Name is the name of the first report of each namespace, and of the first ClusterReport; the
	// others append "-2", "-3" and so on. Reports with another name belong to another auditor. The
	// default is [DefaultReportName].
	Name string
	// MaxResults is the maximum number of results in a report. The default is 1,000. A report that
	// would be longer than 768 KiB has fewer.
	MaxResults int
	// Owner is an object without a namespace that owns all reports, so that they are deleted with
	// it; nil for none. The reports of a namespace are always deleted with the namespace.
	Owner *metav1.OwnerReference
}

func (c *ReportConfig) check() error {
	c.Name, c.MaxResults = cmp.Or(c.Name, DefaultReportName), cmp.Or(c.MaxResults, defaultReportResults)
	var errs []error
	if problems := validation.NameIsDNSLabel(c.Name, false); len(problems) != 0 {
		errs = append(errs, fmt.Errorf("name of reports %.80q: %s", c.Name, problems[0]))
	}
	if c.MaxResults < 0 {
		errs = append(errs, fmt.Errorf("maximum of results is %d, below 0", c.MaxResults))
	}
	return errors.Join(errs...)
}

// Reports returns the findings as reports: those of each namespace, and those of objects without
// one, sorted by namespace and number. A namespace without findings has no report.
func (r *Result) Reports(cfg ReportConfig) ([]*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("make reports: %w", err)
	}
	var reports []*Report
	for from := 0; from < len(r.Findings); {
		namespace, end := r.Findings[from].Namespace, from
		for end < len(r.Findings) && r.Findings[end].Namespace == namespace {
			end++
		}
		for n := 1; from < end; n++ {
			report := newReport(&cfg, namespace, n)
			if n == 1 {
				report.Summary.Pass = r.passed[namespace]
			}
			size := 0
			for ; from < end && len(report.Results) < cfg.MaxResults; from++ {
				result := resultOf(&r.Findings[from])
				text, err := json.Marshal(&result)
				if err != nil {
					return nil, fmt.Errorf("make reports: %w", err)
				}
				if size += len(text) + 1; size > reportBytes && len(report.Results) != 0 {
					break
				}
				report.add(result)
			}
			reports = append(reports, report)
		}
	}
	return reports, nil
}

func newReport(cfg *ReportConfig, namespace string, n int) *Report {
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: reportVersion, Kind: "Report"},
		Metadata: ReportMetadata{Name: cfg.Name, Namespace: namespace, Labels: map[string]string{managedBy: cfg.Name}},
		Source:   reportSource,
		Scope:    &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace},
		Configuration: ReportConfiguration{ReportLimits{
			MaxResults: cfg.MaxResults, StatusFilter: outcomes,
		}},
	}
	if namespace == "" {
		r.Kind, r.Scope = "ClusterReport", nil
	}
	if n > 1 {
		r.Metadata.Name += "-" + strconv.Itoa(n)
	}
	if cfg.Owner != nil {
		r.Metadata.OwnerReferences = []metav1.OwnerReference{*cfg.Owner}
	}
	return r
}

func resultOf(f *Finding) ReportResult {
	r := ReportResult{
		Policy: f.Policy, Result: f.Outcome, Scored: f.Mode != "Monitor", Message: f.Message,
		Timestamp: metav1.Timestamp{Seconds: f.Since.Unix()}, Properties: map[string]string{"mode": string(f.Mode)},
		Resources: []corev1.ObjectReference{{APIVersion: f.APIVersion, Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, UID: types.UID(f.UID)}},
	}
	if f.Code != 0 {
		r.Properties["code"] = strconv.Itoa(int(f.Code))
	}
	return r
}

func (r *Report) add(result ReportResult) {
	r.Results = append(r.Results, result)
	switch result.Result {
	case Denied:
		r.Summary.Fail++
	case Patched:
		r.Summary.Warn++
	case Failed:
		r.Summary.Error++
	}
}

// Reporter writes reports to a cluster.
type Reporter struct {
	client *client
	cfg    ReportConfig
}

// NewReporter returns a Reporter for the cluster of config, which must have the
// CustomResourceDefinitions of openreports.io. config and its RateLimiter work as in [Config].
func NewReporter(config *rest.Config, cfg ReportConfig) (*Reporter, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("write reports: configuration: %w", err)
	}
	c, err := newClient(config, defaultQPS, defaultBurst)
	if err != nil {
		return nil, fmt.Errorf("write reports: %w", err)
	}
	return &Reporter{c, cfg}, nil
}

// Written counts the reports of a [Reporter.Write].
type Written struct {
	// Applied, Unchanged and Deleted count reports: reports that were written, reports that the
	// cluster already had, and stale reports.
	Applied, Unchanged, Deleted int
}

// Write makes the reports in the cluster equal to those of a result. It applies new and changed
// reports by server-side apply, with the name of the reports as the field manager, and deletes
// reports of that name without findings. If a report cannot be written, the others still are; the
// error joins all reasons. Stale reports are deleted only if nothing failed.
func (r *Reporter) Write(ctx context.Context, result *Result) (w Written, err error) {
	reports, err := result.Reports(r.cfg)
	if err != nil {
		return w, err
	}
	there := map[reportKey]string{} // Holds their digests.
	for _, cluster := range []bool{false, true} {
		err := r.client.metadata(ctx, pathOf(reportResource(cluster), ""), managedBy+"="+r.cfg.Name, func(m *metav1.ObjectMeta) {
			there[reportKey{m.Namespace, m.Name}] = m.Annotations[digestAnnotation]
		})
		switch {
		case apierrors.IsNotFound(err):
			return w, fmt.Errorf("list the reports: the cluster has no %s, whose CustomResourceDefinitions are those of https://github.com/openreports/reports-api: %w", reportResource(cluster).GroupResource(), err)
		case err != nil:
			return w, fmt.Errorf("list the reports: %w", err)
		}
	}
	var errs []error
	for _, report := range reports {
		key := reportKey{report.Metadata.Namespace, report.Metadata.Name}
		body, digest, err := report.encode()
		if err != nil {
			return w, err
		}
		if before, ok := there[key]; ok && before == digest {
			w.Unchanged++
		} else if err := r.apply(ctx, key, body); err != nil {
			errs = append(errs, fmt.Errorf("apply report %s: %w", key, err))
		} else {
			w.Applied++
		}
		delete(there, key)
	}
	if err := errors.Join(errs...); err != nil {
		return w, err
	}
	if len(result.Errors) != 0 {
		return w, nil // Findings of objects that were not audited may still hold.
	}
	for _, key := range slices.SortedFunc(maps.Keys(there), func(a, b reportKey) int { return cmp.Compare(a.String(), b.String()) }) {
		_, err := r.client.do(ctx, func() *rest.Request { return r.client.rest.Delete().AbsPath(key.path()) })
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete stale report %s: %w", key, err))
			continue
		}
		w.Deleted++
	}
	return w, errors.Join(errs...)
}

// encode returns the report in the form that is applied, and its digest.
func (r *Report) encode() (body []byte, digest string, err error) {
	if body, err = json.Marshal(r); err != nil {
		return nil, "", fmt.Errorf("encode report: %w", err)
	}
	sum := sha256.Sum256(body)
	digest = hex.EncodeToString(sum[:16])
	noted := *r
	noted.Metadata.Annotations = map[string]string{digestAnnotation: digest}
	if body, err = json.Marshal(&noted); err != nil {
		return nil, "", fmt.Errorf("encode report: %w", err)
	}
	return body, digest, nil
}

func (r *Reporter) apply(ctx context.Context, key reportKey, body []byte) error {
	_, err := r.client.do(ctx, func() *rest.Request {
		return r.client.rest.Patch(types.ApplyPatchType).AbsPath(key.path()).
			Param("fieldManager", r.cfg.Name).Param("force", "true").Param("fieldValidation", "Strict").Body(bytes.Clone(body))
	})
	if apierrors.IsNotFound(err) && key.namespace != "" {
		return nil // The namespace is gone, and its findings with it.
	}
	return err
}

// reportKey names a report. Without a namespace, it names a ClusterReport.
type reportKey struct{ namespace, name string }

func (k reportKey) String() string {
	if k.namespace == "" {
		return k.name
	}
	return k.namespace + "/" + k.name
}

func (k reportKey) path() string {
	return pathOf(reportResource(k.namespace == ""), k.namespace) + "/" + k.name
}

func reportResource(cluster bool) schema.GroupVersionResource {
	r := schema.GroupVersionResource{Group: reportGroup, Version: "v1alpha1", Resource: "reports"}
	if cluster {
		r.Resource = "clusterreports"
	}
	return r
}
