package ocimetrics_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	client, err := oci.New(oci.Config{Trust: []oci.Trust{{Repositories: []string{"*"}, Unsigned: true}}})
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(ocimetrics.New(client))

	ref := oci.Reference{Layout: filepath.Join(dir, "plugins"), Tag: "1"}
	if _, err := client.Push(context.Background(), ref, []byte("\x00asm\x01\x00\x00\x00"), oci.PushOptions{}); err != nil {
		log.Fatal(err)
	}
	source := client.Source(ref.String())
	defer runtime.KeepAlive(source) // A source that nothing holds leaves the metrics.
	if _, err := source.Fetch(context.Background()); err != nil {
		log.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "result" && m.GetCounter().GetValue() != 0 {
					fmt.Println(family.GetName(), label.GetValue(), m.GetCounter().GetValue())
				}
			}
			if strings.HasSuffix(family.GetName(), "_stale") {
				fmt.Println(family.GetName(), m.GetGauge().GetValue())
			}
		}
	}
	// Output:
	// kubewasm_oci_fetches_total fetched 1
	// kubewasm_oci_source_stale 0
}
