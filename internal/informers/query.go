package informers

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/host"
)

// noQuery is the query of a Scope of objects of the API.
var noQuery host.ObjectQuery

// maxQueryBytes is the length of the longest answer to a query.
const maxQueryBytes = 16 << 20

// Getter gets a path of the API server with parameters, 16 MiB of the answer at most.
type Getter func(ctx context.Context, path string, parameters url.Values) ([]byte, error)

// GetterOf returns the Getter of a client.
func GetterOf(config *rest.Config) (Getter, error) {
	config = dynamic.ConfigFor(config)
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	// The API server passes on the redirects of a service, and a client would send its credentials there.
	// An error has its body read in whole.
	own := *connection
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("the source redirects") }
	own.Transport = shortBodies{cmp.Or(own.Transport, http.DefaultTransport)}
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, &own)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, path string, parameters url.Values) ([]byte, error) {
		request := client.Get().AbsPath(path)
		for name, values := range parameters {
			for _, value := range values {
				request.Param(name, value)
			}
		}
		body, err := request.Stream(ctx)
		if err != nil {
			return nil, err
		}
		defer body.Close()
		b, err := io.ReadAll(io.LimitReader(body, maxQueryBytes+1))
		if err == nil && len(b) > maxQueryBytes {
			err = fmt.Errorf("the answer has more than %d MiB", maxQueryBytes>>20)
		}
		return b, err
	}, nil
}

// shortBodies bounds the bodies of answers by maxQueryBytes and a byte. An error of Prometheus becomes
// text: clients of the API server drop the body of an error in JSON that is none of the server's.
type shortBodies struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t shortBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		body := bufio.NewReader(io.LimitReader(resp.Body, maxQueryBytes+1))
		if resp.StatusCode >= http.StatusBadRequest {
			if b, _ := body.Peek(len(promError)); string(b) == promError {
				resp.Header.Set("Content-Type", "text/plain")
			}
		}
		resp.Body = struct {
			io.Reader
			io.Closer
		}{body, resp.Body}
	}
	return resp, err
}

// promError begins each error of Prometheus.
const promError = `{"status":"error"`

// few is a list of at most maxPolled elements: an element takes more memory than its text.
type few[T any] []T

// UnmarshalJSON implements [json.Unmarshaler].
func (l *few[T]) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if first, err := d.Token(); err != nil || first == nil {
		return err
	} else if first != json.Delim('[') {
		return errors.New("the values are no list")
	}
	for d.More() {
		if len(*l) == maxPolled {
			return fmt.Errorf("there are more than %d values", maxPolled)
		}
		var one T
		if err := d.Decode(&one); err != nil {
			return err
		}
		*l = append(*l, one)
	}
	return nil
}

// sample is a value of a query.
type sample struct {
	namespace, name string
	labels          map[string]string
	at              time.Time
	value           float64
}

// runQuery returns the answer to a query as objects. Values that are no finite numbers are left out,
// and those whose name is none of an object.
func runQuery(ctx context.Context, get Getter, s Scope) ([]unstructured.Unstructured, error) {
	if get == nil {
		return nil, errors.New("there is no client for queries")
	}
	var samples []sample
	var err error
	q := s.Query
	switch {
	case q.Prometheus != "":
		samples, err = prometheus(ctx, get, q)
	case q.Custom != "":
		object, metric, _ := strings.Cut(q.Custom, "/")
		samples, err = metrics(ctx, get, "custom.metrics.k8s.io/v1beta2", s.Namespace, object+"/*/"+metric, q)
	default:
		samples, err = metrics(ctx, get, "external.metrics.k8s.io/v1beta1", s.Namespace, q.External, q)
	}
	if err != nil {
		return nil, err
	}
	list := make([]unstructured.Unstructured, 0, len(samples))
	for _, v := range samples {
		if v.name == "" {
			v.name = s.Resource.Resource
		}
		if math.IsNaN(v.value) || math.IsInf(v.value, 0) || s.Namespace != "" && v.namespace != s.Namespace ||
			len(path.IsValidPathSegmentName(v.name)) != 0 || v.namespace != "" && len(path.IsValidPathSegmentName(v.namespace)) != 0 {
			continue
		}
		u := unstructured.Unstructured{Object: map[string]any{
			"apiVersion": s.Resource.GroupVersion().String(), "kind": s.Resource.Resource,
			"timestamp": v.at.UTC().Format(time.RFC3339), "value": v.value,
		}}
		u.SetName(v.name)
		if v.namespace != "" {
			u.SetNamespace(v.namespace)
		}
		if len(v.labels) != 0 {
			u.SetLabels(v.labels)
		}
		list = append(list, u)
	}
	return list, nil
}

// promSample is a value of an answer of Prometheus.
type promSample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

// metric is a value of an answer of the APIs of metrics.
type metric struct {
	DescribedObject struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"describedObject"`
	MetricLabels map[string]string `json:"metricLabels"`
	Timestamp    metav1.Time       `json:"timestamp"`
	Value        amount            `json:"value"`
}

// amount is a quantity, without the precision that it may have. One that would take long to read is not a
// number.
type amount float64

// UnmarshalJSON implements [json.Unmarshaler].
func (v *amount) UnmarshalJSON(b []byte) error {
	exponent := max(bytes.LastIndexAny(b, "eE"), 0)
	if *v = amount(math.NaN()); len(b) > 64 || exponent > 0 && len(b)-exponent > len("e-100\"") {
		return nil
	}
	var q resource.Quantity
	err := q.UnmarshalJSON(b)
	if err == nil {
		*v = amount(q.AsApproximateFloat64())
	}
	return err
}

// prometheus runs an instant query.
func prometheus(ctx context.Context, get Getter, q host.ObjectQuery) (list []sample, err error) {
	namespace, service, _ := strings.Cut(q.Service, "/")
	b, err := get(ctx, "/api/v1/namespaces/"+namespace+"/services/"+service+"/proxy/api/v1/query", url.Values{"query": {q.Prometheus}})
	if err != nil {
		return nil, refusal(err)
	}
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			ResultType string          `json:"resultType"`
			Result     few[promSample] `json:"result"`
		} `json:"data"`
	}
	// The result of another type has another form.
	if err := json.Unmarshal(b, &answer); err != nil && (answer.Status == "" || answer.Data.ResultType == "vector") {
		return nil, fmt.Errorf("read the answer of Prometheus: %w", err)
	}
	if answer.Status != "success" || answer.Data.ResultType != "vector" {
		return nil, fmt.Errorf("the answer of Prometheus is %.20q with a %.20q, want a vector: %.200s", answer.Status, answer.Data.ResultType, answer.Error)
	}
	for _, r := range answer.Data.Result {
		seconds, ok := r.Value[0].(float64)
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || !ok || seconds < 0 || seconds > 1<<36 { // A year of four digits.
			continue
		}
		s := sample{at: time.UnixMilli(int64(seconds * 1000)), value: value, labels: r.Metric}
		if q.Name != "" {
			if s.name = r.Metric[q.Name]; s.name == "" {
				continue
			}
		}
		if q.Namespace != "" {
			if s.namespace = r.Metric[q.Namespace]; s.namespace == "" {
				continue
			}
		}
		delete(s.labels, "__name__")
		list = append(list, s)
	}
	return list, nil
}

// refusal returns the error of a query with the reason of Prometheus, which is in the body of the answer.
func refusal(err error) error {
	var answer struct{ Error string }
	body, _ := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if json.Unmarshal([]byte(body.Message), &answer) != nil || answer.Error == "" {
		return err
	}
	return fmt.Errorf("%w: Prometheus says %.200q", err, answer.Error)
}

// metrics asks one of the APIs of metrics for those of a namespace, if it is not empty.
func metrics(ctx context.Context, get Getter, api, namespace, of string, q host.ObjectQuery) (list []sample, err error) {
	if namespace != "" {
		of = "namespaces/" + namespace + "/" + of
	}
	parameters := url.Values{}
	if q.Selector != "" {
		parameters.Set("labelSelector", q.Selector)
	}
	b, err := get(ctx, "/apis/"+api+"/"+of, parameters)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Items few[metric] `json:"items"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", api, err)
	}
	for _, i := range answer.Items {
		s := sample{namespace: i.DescribedObject.Namespace, name: i.DescribedObject.Name, labels: i.MetricLabels, at: i.Timestamp.Time, value: float64(i.Value)}
		if q.External != "" {
			s.namespace = namespace
			if q.Name != "" {
				if s.name = i.MetricLabels[q.Name]; s.name == "" {
					continue
				}
			}
		}
		list = append(list, s)
	}
	return list, nil
}
