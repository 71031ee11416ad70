package autoscaler

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/examples/controller/scaler"
)

// Metrics is a source of metrics. Package clustermetrics implements it for a cluster.
// Implementations are safe for use by several goroutines.
type Metrics interface {
	// PodUsage returns the resource usage of the selected Pods of a namespace, by their names. Pods
	// without measurements are missing.
	PodUsage(ctx context.Context, namespace string, selector labels.Selector) (map[string]scaler.Usage, error)
	// Query returns the values of a metric of a namespace, one for each series with the labels.
	Query(ctx context.Context, namespace, name string, series map[string]string) ([]float64, error)
}

// metricsTimeout bounds the time of a query.
const metricsTimeout = 10 * time.Second

// metricsOf answers the queries of guests in a namespace. It implements scaler.Metrics.
type metricsOf struct {
	of        Metrics
	namespace string
}

func (m metricsOf) Query(ctx context.Context, req *scaler.QueryRequest) (*scaler.QueryResponse, error) {
	if m.of == nil {
		return nil, errors.New("this controller has no metrics")
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	values, err := m.of.Query(ctx, m.namespace, req.Name, req.Labels)
	if err != nil {
		return nil, err
	}
	return &scaler.QueryResponse{Values: values}, nil
}
