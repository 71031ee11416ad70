// The guest queue sets the replicas of a workload by the length of a queue. It asks the controller
// for the length of the queue, and needs the grant metrics.
package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/kubewasm/kubewasm/examples/controller/scalerguest"
)

// queue is the guest. Its fields are its configuration.
type queue struct {
	// Metric is the name of the metric with the length. Labels choose its series, whose
	// values are added.
	Metric string            `json:"metric"`
	Labels map[string]string `json:"labels"`
	// PerReplica is the number of queue entries for one replica.
	PerReplica float64 `json:"perReplica"`
}

// Configure checks the configuration.
func (q *queue) Configure() error {
	var errs []error
	if q.Metric == "" {
		errs = append(errs, errors.New("metric is empty"))
	}
	if !(q.PerReplica > 0) {
		errs = append(errs, fmt.Errorf("perReplica is %g, want more than 0", q.PerReplica))
	}
	return errors.Join(errs...)
}

// Replicas returns the number of replicas for the length of the queue, 0 if it is empty.
func (q *queue) Replicas(_ scalerguest.ReplicasRequest, resp *scalerguest.ReplicasResponse) error {
	answer, err := (scalerguest.Metrics{}).Query(&scalerguest.QueryRequest{Name: q.Metric, Labels: q.Labels})
	if err != nil {
		return err
	}
	values := answer.Values()
	if len(values) == 0 {
		return fmt.Errorf("metric %s has no series with these labels", q.Metric)
	}
	length := 0.0
	for _, v := range values {
		length += v
	}
	if !(length >= 0 && length < math.Inf(1)) {
		return fmt.Errorf("metric %s is %g", q.Metric, length)
	}
	replicas := int32(min(math.Ceil(length/q.PerReplica), math.MaxInt32))
	resp.Replicas = &replicas
	resp.Reason = fmt.Sprintf("the queue has %g entries, %g for a replica", length, q.PerReplica)
	return nil
}

func init() { scalerguest.RegisterScaler(&queue{}) }

func main() {}
