package guarded_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

func TestDebugVariableIsSet(t *testing.T) {
	if got, set := os.LookupEnv("KUBEWASM_DEBUG"); !set {
		t.Errorf("KUBEWASM_DEBUG is %q", got)
	}
}

func TestLog(t *testing.T) {
	log := guarded.NewLog()
	logger := slog.New(log)
	with := logger.With("a", 1).WithGroup("g").With("b", 2)
	logger.Debug("one")
	with.Info("two", "c", 3)
	logger.Warn("three", "d", 4)
	const want = "level=DEBUG msg=one\nlevel=INFO msg=two a=1 g.b=2 g.c=3\nlevel=WARN msg=three d=4\n"
	for range 2 {
		if got := log.String(); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}
