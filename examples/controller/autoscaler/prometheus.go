package autoscaler

import "github.com/prometheus/client_golang/prometheus"

var (
	decisionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "scalepolicy_decisions_total",
		Help: "Calls of guests, by result: ok, failed (without a valid answer), no_module.",
	}, []string{"result"})
	scalesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "scalepolicy_scales_total",
		Help: "Writes of the subresource scale, by result: ok, conflict, error.",
	}, []string{"result"})
)

// Collectors returns the metrics of the controllers of this process. Package host/hostmetrics has
// the metrics of guests.
func Collectors() []prometheus.Collector { return []prometheus.Collector{decisionsTotal, scalesTotal} }
