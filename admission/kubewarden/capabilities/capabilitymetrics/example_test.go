package capabilitymetrics_test

import (
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities/capabilitymetrics"
)

func ExampleNew() {
	provider, err := capabilities.NewProvider(capabilities.Config{})
	if err != nil {
		log.Fatal(err)
	}
	prometheus.NewRegistry().MustRegister(capabilitymetrics.New(provider))
}
