// Command peaks prints how much memory hostile inputs take: each in a process of its own, whose
// peak of resident memory is a row of a table.
//
//	go run ./internal/testkit/peaks [-before FILE] [-only TEXT]
//
// With -before, each row runs in that build of the program as well, of a commit before a limit
// was there: the directory copied there builds as long as the functions that it calls exist.
//
// A row is an entry of the list in rows.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

// row is a hostile input. run takes it, in a process of its own with a directory, and returns
// what came of it.
type row struct {
	point int // of the issue, for the order
	name  string
	run   func(ctx context.Context, dir string) error
}

// The process that runs a row finds its name here, and writes to its standard output a line with
// the peak and what came of the input.
const rowVariable = "KUBEWASM_PEAKS_ROW"

// maxTime is how long an input may take. One that takes longer is stopped, with the peak so far
// unknown.
const maxTime = 2 * time.Minute

func main() {
	if name, ok := os.LookupEnv(rowVariable); ok {
		if err := runRow(name); err != nil {
			fmt.Fprintln(os.Stderr, "peaks:", err)
			os.Exit(1)
		}
		return
	}
	before := flag.String("before", "", "another build of this program, a `file`, for the column before")
	only := flag.String("only", "", "only rows whose names have this `text`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peaks:", err)
		os.Exit(1)
	}
	fmt.Println("| Point | Input | Peak before, MB | Peak, MB | Result |\n|---|---|---|---|---|")
	for _, r := range rows {
		if !strings.Contains(r.name, *only) || ctx.Err() != nil {
			continue
		}
		old := "-"
		if *before != "" {
			old, _ = measure(ctx, *before, r.name)
		}
		now, result := measure(ctx, self, r.name)
		fmt.Printf("| %d | %s | %s | %s | %s |\n", r.point, r.name, old, now, result)
	}
}

// measure runs a row in a build of this program, and returns its peak and what came of it.
func measure(ctx context.Context, program, name string) (peak, result string) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), rowVariable+"="+name)
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "?", fmt.Sprintf("did not end in %s", maxTime)
	}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = errors.New(firstLine(string(exit.Stderr)))
		}
		return "?", "the process ended: " + err.Error()
	}
	peak, result, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return peak, result
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// runRow runs a row in this process.
func runRow(name string) error {
	for _, r := range rows {
		if r.name != name {
			continue
		}
		dir, err := os.MkdirTemp("", "peaks")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		result := "accepted"
		if err := r.run(context.Background(), dir); err != nil {
			result = "refused: " + firstLine(err.Error())
		}
		peak, err := peakMemory()
		if err != nil {
			return err
		}
		fmt.Println(peak>>20, result)
		return nil
	}
	return fmt.Errorf("there is no row %q", name)
}
