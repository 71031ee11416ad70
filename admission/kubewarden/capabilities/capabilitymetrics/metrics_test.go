package capabilitymetrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities/capabilitymetrics"
)

type oneHost struct{}

func (oneHost) LookupHost(_ context.Context, name string) ([]string, error) {
	if name != "a.example.com" {
		return nil, errors.New("no such host")
	}
	return []string{"192.0.2.1"}, nil
}

func TestCapabilities(t *testing.T) {
	provider, err := capabilities.NewProvider(capabilities.Config{Resolver: oneHost{}})
	if err != nil {
		t.Fatal(err)
	}
	caller := provider.Caller("p", capabilities.Scope{HostNames: []string{"*.example.com"}})
	for _, name := range []string{"a.example.com", "a.example.com", "b.example.com", "a.example.org"} {
		_, err := caller.LookupHost(t.Context(), name, func(addresses []string) []byte { return []byte(addresses[0]) })
		caller.Count(capabilities.LookupHost, err)
	}
	caller.Count("what a guest says", nil)
	const want = `
# HELP kubewasm_admission_capability_cache_bytes Memory of the answers in the cache.
# TYPE kubewasm_admission_capability_cache_bytes gauge
kubewasm_admission_capability_cache_bytes 265
# HELP kubewasm_admission_capability_cache_entries Answers in the cache.
# TYPE kubewasm_admission_capability_cache_entries gauge
kubewasm_admission_capability_cache_entries 1
# HELP kubewasm_admission_capability_cache_evictions_total Answers evicted from the cache.
# TYPE kubewasm_admission_capability_cache_evictions_total counter
kubewasm_admission_capability_cache_evictions_total 0
# HELP kubewasm_admission_capability_cache_lookups_total Look-ups in the cache of answers, and misses that waited for an equal question.
# TYPE kubewasm_admission_capability_cache_lookups_total counter
kubewasm_admission_capability_cache_lookups_total{result="hit"} 1
kubewasm_admission_capability_cache_lookups_total{result="miss"} 2
kubewasm_admission_capability_cache_lookups_total{result="shared"} 0
# HELP kubewasm_admission_capability_calls_total Calls of host capabilities by policies, by result.
# TYPE kubewasm_admission_capability_calls_total counter
kubewasm_admission_capability_calls_total{operation="net/v1/dns_lookup_host",policy="p",result="answered"} 2
kubewasm_admission_capability_calls_total{operation="net/v1/dns_lookup_host",policy="p",result="failed"} 1
kubewasm_admission_capability_calls_total{operation="net/v1/dns_lookup_host",policy="p",result="refused"} 1
kubewasm_admission_capability_calls_total{operation="unknown",policy="p",result="answered"} 1
`
	if err := testutil.CollectAndCompare(capabilitymetrics.New(provider), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	other := provider.Caller("p", capabilities.Scope{})
	caller.Close()
	caller.Close()
	if n := len(provider.Stats().Calls); n == 0 {
		t.Error("the counts of a policy are gone that has another version")
	}
	other.Close()
	if n := len(provider.Stats().Calls); n != 0 {
		t.Errorf("%d counts of a policy that is gone", n)
	}
}
