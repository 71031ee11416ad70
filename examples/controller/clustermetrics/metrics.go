// Package clustermetrics reads metrics of a cluster: the resource usage of Pods from
// metrics.k8s.io, as served by metrics-server, and external metrics from external.metrics.k8s.io,
// as served by adapters of Prometheus, KEDA and others.
package clustermetrics

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	resourcemetrics "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/external_metrics"

	"github.com/kubewasm/kubewasm/examples/controller/autoscaler"
	"github.com/kubewasm/kubewasm/examples/controller/scaler"
)

// Metrics reads the metrics of a cluster. It is safe for use by several goroutines.
type Metrics struct {
	pods     resourcemetrics.PodMetricsesGetter
	external external_metrics.NamespacedMetricsGetter
}

var _ autoscaler.Metrics = (*Metrics)(nil)

// timeout bounds the time of a request.
const timeout = 10 * time.Second

// New returns the metrics of the cluster that config connects to.
func New(config *rest.Config) (*Metrics, error) {
	config = rest.CopyConfig(config)
	config.Timeout = timeout // The client of external metrics takes no context.
	pods, err := resourcemetrics.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to metrics.k8s.io: %w", err)
	}
	external, err := external_metrics.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to external.metrics.k8s.io: %w", err)
	}
	return &Metrics{pods, external}, nil
}

// PodUsage implements [autoscaler.Metrics].
func (m *Metrics) PodUsage(ctx context.Context, namespace string, selector labels.Selector) (map[string]scaler.Usage, error) {
	list, err := m.pods.PodMetricses(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	usage := make(map[string]scaler.Usage, len(list.Items))
	for _, pod := range list.Items {
		sum := scaler.Usage{WindowMillis: pod.Window.Milliseconds()}
		if !pod.Timestamp.IsZero() {
			sum.UnixSeconds = pod.Timestamp.Unix()
		}
		for _, c := range pod.Containers {
			sum.CpuMillis += c.Usage.Cpu().MilliValue()
			sum.MemoryBytes += c.Usage.Memory().Value()
		}
		usage[pod.Name] = sum
	}
	return usage, nil
}

// Query implements [autoscaler.Metrics].
func (m *Metrics) Query(_ context.Context, namespace, name string, series map[string]string) ([]float64, error) {
	selector, err := labels.ValidatedSelectorFromSet(series)
	if err != nil {
		return nil, fmt.Errorf("query metric %q: %w", name, err)
	}
	list, err := m.external.NamespacedMetrics(namespace).List(name, selector)
	if err != nil {
		return nil, fmt.Errorf("query metric %q: %w", name, err)
	}
	values := make([]float64, len(list.Items))
	for i := range list.Items {
		values[i] = list.Items[i].Value.AsApproximateFloat64()
	}
	return values, nil
}
