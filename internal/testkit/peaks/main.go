// Command peaks prints how much memory hostile inputs take: each in a process of its own, whose
// peak of resident memory is a row of a table.
//
//	go run -C internal/testkit/peaks . [-before FILE] [-only TEXT]
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

// row is a hostile input. run takes it, in a process of its own with a directory. It returns nil
// for an input that is accepted, a note, or the error that refuses it.
type row struct {
	point int // of the issue, for the order
	name  string
	run   func(ctx context.Context, dir string) error
}

// note is the result of an input that is not refused.
type note string

func (n note) Error() string { return string(n) }

// The process that runs a row finds its name here, and writes what came of the input to its
// standard output.
const rowVariable = "KUBEWASM_PEAKS_ROW"

// maxTime is how long an input may take. One that takes longer is stopped.
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
	fmt.Println("| Point | Input | MB before | Before | MB | Now |\n|---|---|---|---|---|---|")
	for _, r := range rows {
		if !strings.Contains(r.name, *only) || ctx.Err() != nil {
			continue
		}
		old, resultBefore := "-", "-"
		if *before != "" {
			old, resultBefore = measure(ctx, *before, r.name)
		}
		now, result := measure(ctx, self, r.name)
		fmt.Printf("| %d | %s | %s | %s | %s | %s |\n", r.point, r.name, old, resultBefore, now, result)
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
		return peakOf(cmd.ProcessState), fmt.Sprintf("stopped after %.0f min", maxTime.Minutes())
	}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = errors.New(firstLine(string(exit.Stderr)))
		}
		return peakOf(cmd.ProcessState), "the process ended: " + err.Error()
	}
	return peakOf(cmd.ProcessState), strings.TrimSpace(string(out))
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
		var said note
		switch err := r.run(context.Background(), dir); {
		case err == nil:
			said = "accepted"
		case errors.As(err, &said):
		default:
			said = note(fmt.Sprintf("refused: %.160s", firstLine(err.Error())))
		}
		fmt.Println(said)
		return nil
	}
	return fmt.Errorf("there is no row %q", name)
}
