package cases

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// recorder is a testing.TB outside of package testing: the kits report to it.
type recorder struct {
	testing.TB // For methods that the kits do not use.

	ctx      context.Context
	name     string
	failures []string
	skipped  string
	cleanups []func()
}

// try runs f to its end, or to its first fatal failure. The recorder has the reports of f. close
// runs the cleanups of f.
func try(ctx context.Context, name string, f func(t *recorder)) *recorder {
	r := &recorder{ctx: ctx, name: name}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r
}

// close runs the registered cleanups, the last first.
func (r *recorder) close() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	r.cleanups = nil
}

func (r *recorder) fail(text string) { r.failures = append(r.failures, strings.TrimRight(text, "\n")) }

// The methods of testing.TB that the kits call.

func (r *recorder) Helper()                   {}
func (r *recorder) Name() string              { return r.name }
func (r *recorder) Context() context.Context  { return r.ctx }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool              { return len(r.failures) != 0 }
func (r *recorder) Skipped() bool             { return r.skipped != "" }
func (r *recorder) Output() io.Writer         { return io.Discard }
func (r *recorder) Log(...any)                {}
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Error(args ...any)         { r.fail(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)) }
func (r *recorder) Fail()                     { r.fail("failed") }
func (r *recorder) FailNow()                  { r.fail("failed"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)         { r.fail(fmt.Sprintln(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)); runtime.Goexit() }
func (r *recorder) SkipNow()                  { r.skipped = "skipped"; runtime.Goexit() }
func (r *recorder) Skip(args ...any)          { r.skipped = fmt.Sprint(args...); runtime.Goexit() }
func (r *recorder) Skipf(f string, a ...any)  { r.skipped = fmt.Sprintf(f, a...); runtime.Goexit() }
