package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"text/tabwriter"
	"time"
)

// guests are the modules that were compiled, as files.
type guests struct{ scheduler, admission, hooks string }

// build compiles the three guests with the machine's Go, into a directory.
func build(ctx context.Context, out io.Writer, dir string) (*guests, error) {
	root, err := examples()
	if err != nil {
		return nil, err
	}
	g := &guests{}
	jobs := []*struct {
		component, dir string
		file           *string
		took           time.Duration
		err            error
	}{
		{component: "scheduler", dir: "sched/zone", file: &g.scheduler},
		{component: "webhook", dir: "admission/required-labels", file: &g.admission},
		{component: "node agent", dir: "hooks/cpu-from-annotation", file: &g.hooks},
	}
	var wg sync.WaitGroup
	for _, job := range jobs {
		wg.Go(func() {
			start := time.Now()
			*job.file, job.err = compile(ctx, filepath.Join(root, job.dir), filepath.Join(dir, filepath.Base(job.dir)+".wasm"))
			job.took = time.Since(start)
		})
	}
	wg.Wait()
	fmt.Fprintln(out, "GUESTS, compiled from Go to WebAssembly just now")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  FOR\tSOURCE\tSIZE\tCOMPILED IN")
	for _, job := range jobs {
		if job.err != nil {
			return nil, job.err
		}
		info, err := os.Stat(*job.file)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(t, "  %s\texamples/%s\t%.1f MB\t%s\n", job.component, job.dir, float64(info.Size())/1e6, round(job.took))
	}
	return g, t.Flush()
}

// compile compiles the guest in a directory to a file, as kubewasm build does for guests in Go.
func compile(ctx context.Context, dir, file string) (string, error) {
	tool, err := exec.LookPath("go")
	if err != nil {
		return "", errors.New("no Go toolchain: the command go is not in PATH")
	}
	cmd := exec.CommandContext(ctx, tool, "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s: %w: %s", dir, err, bytes.Join(bytes.Fields(text), []byte(" ")))
	}
	return file, nil
}

// examples finds the directory of the guests' sources: beside this file, where
// it was compiled, or below the working directory.
func examples() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	for _, dir := range []string{filepath.Dir(filepath.Dir(file)), "examples"} {
		if _, err := os.Stat(filepath.Join(dir, "sched", "zone", "main.go")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the sources of the guests are not here; run it in a checkout of kubewasm")
}

// round makes a duration short enough to read: three digits.
func round(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}
