package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
)

func TestAnEventWithoutAnAnswerIsUnhealthy(t *testing.T) {
	h := &Handler{cfg: Config{Timeout: time.Second}}
	now := time.Now()
	if err := h.healthy(now.Add(time.Hour)); err != nil {
		t.Errorf("before any event: %v", err)
	}
	first := h.answering.begin(abi.PreCreateContainer)
	second := h.answering.begin(abi.PostStopContainer)
	if err := h.healthy(now.Add(9 * time.Second)); err != nil {
		t.Errorf("before it is late: %v", err)
	}
	second()
	if err := h.healthy(now.Add(12 * time.Second)); err == nil || !strings.Contains(err.Error(), "PreCreateContainer") {
		t.Errorf("got error %v", err)
	}
	first()
	if err := h.healthy(now.Add(time.Hour)); err != nil {
		t.Errorf("after the answers: %v", err)
	}
}
