package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

// manifests answers guests with manifests that have canaries, and with errors that repeat the question.
type manifests struct{ *canaries.Maker }

func (h manifests) Ask(_ context.Context, req *testservice.Message) (*testservice.Message, error) {
	if req.I32%5 == 0 {
		return nil, fmt.Errorf("the host does not know %s", req.Text)
	}
	return &testservice.Message{Text: h.Manifest(), Texts: []string{req.Text}}, nil
}

// TestRecordingsOfAServiceTellNoSecrets calls a service with canaries, whose guest repeats them to the
// host and in its answers, and another version of it. -canaries 100000 makes many calls.
func TestRecordingsOfAServiceTellNoSecrets(t *testing.T) {
	t.Parallel()
	rt, module := runtime(t), parrotModule(t)
	for name, odd := range map[string]bool{"values of letters": false, "values with escapes": true} {
		t.Run(name, func(t *testing.T) {
			m := canaries.NewMaker(4)
			m.Odd = odd
			holdsNoSecrets(t, rt, module, m, *canaries.Calls/2, func(id string) parrot.Script {
				s := m.Script(id, "ask", "ask", "text", "texts", "bytes", "log", "print", "error")
				if m.IntN(50) == 0 {
					s = m.Ends(id, "log", "text")
				}
				return s
			})
		})
	}
}

// TestAQuestionAfterALineOfAnotherLength records a guest that asks with a secret, after a line about
// it whose length a replay does not repeat. A changed module asks the same.
func TestAQuestionAfterALineOfAnotherLength(t *testing.T) {
	t.Parallel()
	m, n := canaries.NewMaker(4), 0
	m.Odd = true
	holdsNoSecrets(t, runtime(t), parrotModule(t), m, 600, func(id string) parrot.Script {
		n++
		return parrot.Script{ID: id, Ops: []parrot.Op{
			{Do: "log", As: parrot.Uneven[n%len(parrot.Uneven)]}, {Do: "ask", As: parrot.Even[n%len(parrot.Even)], Value: n % 3}, {Do: "text", As: "plain"},
		}}
	})
}

// parrotModule returns the guest that does what scripts say.
func parrotModule(t *testing.T) []byte {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "testdata/testservice/parrot")
	if err != nil {
		t.Fatal(err)
	}
	module, err := host.File(file).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// holdsNoSecrets records calls with the scripts that next returns, and holds what
// [canaries.Recording.Holds] does.
func holdsNoSecrets(t *testing.T, rt *host.Runtime, module []byte, m *canaries.Maker, calls int, next func(id string) parrot.Script) {
	t.Helper()
	r := &canaries.Recording{Dir: t.TempDir(), Module: module, Calls: map[string]canaries.Call{}, Odd: m.Odd, Nameless: true}
	cfg := service.Config{Config: host.Config{
		Name: "parrot", Module: host.ModuleConfig{Bytes: module}, Grants: []string{"ask"}, Limits: host.Limits{Instances: 1, Timeout: time.Minute},
		Record: &record.Config{Path: r.Dir, QueueBytes: 1 << 30, MaxBytes: 8 << 30},
	}}
	if m.Odd {
		cfg.Reset = host.ResetPerCall
	}
	p, err := testservice.LoadTest(t.Context(), rt, cfg, manifests{m})
	if err != nil {
		t.Fatal(err)
	}
	for n := range calls {
		id := fmt.Sprint("c", n)
		s := next(id)
		_, _ = p.Echo(t.Context(), messageWith(m, s)) // Guests that fail fail it.
		r.Calls[id] = canaries.Call{Function: "kubewasm.test.v1.Test/Echo", Apply: parrot.OfService(s)}
	}
	r.Made = m.Made
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Holds(t, rt, 1)
}

// messageWith returns a request, most of which have canaries.
func messageWith(m *canaries.Maker, s parrot.Script) *testservice.Message {
	script := s.String()
	req := &testservice.Message{First: &script}
	switch m.IntN(6) {
	case 0:
		req.Text = m.Manifest()
	case 1:
		req.Texts = []string{"a text that is no manifest", m.Manifest()}
	case 2:
		req.Data = []byte(canaries.Text(m.Secret("a")))
	case 3, 4:
		req.Pod = m.Pod(s.ID)
	}
	return req
}
