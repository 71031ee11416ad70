package service_test

import (
	"context"
	"testing"

	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
)

// Calls of a service with its questions to the host are recorded, and can be repeated: those of
// guests that break a rule, too.
func TestARecordingOfAServiceReplays(t *testing.T) {
	dir, calls := t.TempDir(), replaying.Calls(t, 600)
	cfg := config(t)
	cfg.Record = &record.Config{Path: dir, QueueBytes: 1 << 30}
	rt := runtime(t)
	p, err := testservice.LoadTest(t.Context(), rt, cfg, asked{})
	if err != nil {
		t.Fatal(err)
	}
	methods := []func(context.Context, *testservice.Message) (*testservice.Message, error){
		p.Echo, p.AskHost, p.Trap, p.Fail, p.OutOfBounds, p.Malformed, p.ForeignRef, p.AskForeignRef, p.AskPart, p.AskEntry, p.ServeLate, p.TooLong, p.AskHostMalformed,
	}
	for n := range calls {
		method := methods[0]
		if n%2 == 1 {
			method = methods[n/2%len(methods)]
		}
		_, _ = method(t.Context(), everything()) // Most of them fail.
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	replaying.Verify(t, rt, dir, calls, module(t, testservice.Schema()))
}
