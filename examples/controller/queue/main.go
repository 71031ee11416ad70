// The guest queue sets the replicas of a workload by the length of a queue. It asks the controller
// for the length of the queue, and needs the grant metrics, or looks the values of a query up.
package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/examples/controller/scalerguest"
	"github.com/kubewasm/kubewasm/guest/api/metrics"
	"github.com/kubewasm/kubewasm/guest/service"
)

// queue is the guest. Its fields are its configuration.
type queue struct {
	// Metric is the name of the metric with the length. Labels choose its series, whose
	// values are added.
	Metric string            `json:"metric"`
	Labels map[string]string `json:"labels"`
	// Query is the name of a query of the operator whose values are added, in place of Metric.
	Query string `json:"query"`
	// PerReplica is the number of queue entries for one replica.
	PerReplica float64 `json:"perReplica"`
}

// Configure checks the configuration.
func (q *queue) Configure() error {
	var errs []error
	if (q.Metric == "") == (q.Query == "") {
		errs = append(errs, errors.New("want one of metric and query"))
	}
	if !(q.PerReplica > 0) {
		errs = append(errs, fmt.Errorf("perReplica is %g, want more than 0", q.PerReplica))
	}
	return errors.Join(errs...)
}

// Replicas returns the number of replicas for the length of the queue, 0 if it is empty.
func (q *queue) Replicas(req scalerguest.ReplicasRequest, resp *scalerguest.ReplicasResponse) error {
	values, err := q.values(req.Workload().Object().Metadata().Namespace())
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return fmt.Errorf("metric %s has no series with these labels", q.Metric+q.Query)
	}
	length := 0.0
	for _, v := range values {
		length += v
	}
	if !(length >= 0 && length < math.Inf(1)) {
		return fmt.Errorf("metric %s is %g", q.Metric+q.Query, length)
	}
	replicas := int32(min(math.Ceil(length/q.PerReplica), math.MaxInt32))
	resp.Replicas = &replicas
	resp.Reason = fmt.Sprintf("the queue has %g entries, %g for a replica", length, q.PerReplica)
	return nil
}

// values returns the values of the series that the labels choose.
func (q *queue) values(namespace string) (values []float64, err error) {
	if q.Query != "" {
		for sample := range service.ListObjects(metrics.SampleFromJSON, "metrics.kubewasm.dev/v1/"+q.Query, namespace, labels(q.Labels)) {
			values = append(values, sample.Value())
		}
		return values, nil
	}
	answer, err := (scalerguest.Metrics{}).Query(&scalerguest.QueryRequest{Name: q.Metric, Labels: q.Labels})
	if err != nil {
		return nil, err
	}
	return answer.Values(), nil
}

// labels returns the selector of labels.
func labels(of map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(of)) { // A replay asks the same question.
		pairs = append(pairs, key+"="+of[key])
	}
	return strings.Join(pairs, ",")
}

func init() { scalerguest.RegisterScaler(&queue{}) }

func main() {}
