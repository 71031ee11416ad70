package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// guests are the modules that were compiled, as files.
type guests struct{ scheduler, admission, hooks string }

// build compiles the three guests with the machine's Go.
func build(ctx context.Context, out io.Writer) (*guests, error) {
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
			*job.file, job.err = guestbuild.Build(ctx, filepath.Join(root, job.dir))
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
