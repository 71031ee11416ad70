package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
)

var allExamples = flag.Bool("examples", false, "profile every example, which are built first")

// profiledFuel adds up the fuel of calls since the last reset of the profiler.
type profiledFuel struct {
	fuelCounter
	fuel atomic.Int64
}

func (f *profiledFuel) Called(_ context.Context, c host.CallEvent) { f.fuel.Add(c.Fuel) }

// TestProfilesOfExamplesAddUp runs examples as the command does.
func TestProfilesOfExamplesAddUp(t *testing.T) {
	configs := map[string]string{"zone": "zone: b", "required-labels": "labels: [owner]"}
	dirs := []string{"testdata/zone", "../../examples/admission/required-labels", "../../examples/hooks/cpu-from-annotation"}
	if *allExamples {
		for _, kind := range []string{"sched", "admission", "hooks"} {
			more, err := filepath.Glob("../../examples/" + kind + "/*")
			if err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, more...)
		}
	}
	for _, dir := range dirs {
		t.Run(strings.TrimPrefix(dir, "../../examples/"), func(t *testing.T) {
			tool := &tool{out: io.Discard, err: t.Output()}
			flags := pflag.NewFlagSet("profile", pflag.ContinueOnError)
			f := tool.runFlags(flags)
			args := []string{"-f", "testdata/cluster.yaml"}
			if !strings.Contains(dir, "/hooks/") {
				args = append(args, "--grant", "objects")
			}
			if config := configs[filepath.Base(dir)]; config != "" {
				args = append(args, "--config", file(t, "config.yaml", config))
			}
			if err := flags.Parse(args); err != nil {
				t.Fatal(err)
			}
			trial, err := tool.trial(t.Context(), flags, f, built(t, dir))
			if err != nil {
				t.Skip("it does not run on these objects: ", err)
			}
			var calls profiledFuel
			trial.cfg.Observer, trial.cfg.Profiler = &calls, &host.Profiler{}
			trial.onLoad = func() { calls.fuel.Store(0) }
			if err := trial.run(t.Context()); err != nil {
				t.Skip("it does not run on these objects: ", err)
			}
			p := trial.cfg.Profiler.Profile()
			if p.Calls == 0 {
				t.Skip("it is for other objects")
			}
			if p.Fuel() != calls.fuel.Load() {
				t.Errorf("the profile has %d fuel of %d calls, the calls had %d", p.Fuel(), p.Calls, calls.fuel.Load())
			}
			for _, s := range p.Samples {
				if strings.HasPrefix(s.Stack[0].Name, "function ") {
					t.Errorf("%s has no name", s.Stack[0].Name)
				}
			}
		})
	}
}

func TestProfile(t *testing.T) {
	zone := built(t, "testdata/zone")
	out := filepath.Join(t.TempDir(), "fuel.pb.gz")
	args := []string{"profile", "-f", "testdata/cluster.yaml", "--config", file(t, "c.yaml", "zone: b"), "-o", "json"}
	code, text, stderr := kubewasm(t, append(args, "--top", "0", zone)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var printed costs
	if err := json.Unmarshal([]byte(text), &printed); err != nil {
		t.Fatal(err)
	}
	var sum int64
	var filters bool
	for _, c := range printed.Top {
		sum += c.Flat
		filters = filters || c.Function == "main.(*zone).Filter"
	}
	if sum != printed.Fuel || sum == 0 || !filters {
		t.Errorf("the functions have %d fuel, the profile %d; Filter of the plugin is among them: %t", sum, printed.Fuel, filters)
	}
	if code, text, _ := kubewasm(t, append(args[:len(args)-1:len(args)-1], "pprof", "--output-file", out, zone)...); code != 0 || !strings.Contains(text, "FUNCTION") {
		t.Errorf("exit code %d: the text is not printed beside the file: %s", code, text)
	}
	if code, _, stderr := kubewasm(t, append(args[:len(args)-1:len(args)-1], "pprof", zone)...); code != 1 || !strings.Contains(stderr, "name a file with --output-file") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if info, err := os.Stat(out); err != nil || info.Size() == 0 {
		t.Errorf("the profile was not written: %v", err)
	}

	t.Run("--diff of a module and itself has nothing", func(t *testing.T) {
		code, text, stderr := kubewasm(t, append(args, "--diff", "--max-increase", "0", zone, zone)...)
		var d difference
		if err := json.Unmarshal([]byte(text), &d); err != nil || code != 0 {
			t.Fatalf("exit code %d, %v: %s", code, err, stderr)
		}
		if d.Old.Fuel != printed.Fuel || d.New.Fuel != printed.Fuel || len(d.Functions) != 0 {
			t.Errorf("got %+v", d)
		}
	})
	t.Run("--max-increase fails for a version that costs more", func(t *testing.T) {
		cluster := []string{"profile", "-f", "testdata/cluster.yaml", "--diff", "--max-increase"}
		cheap, dear := built(t, "../../examples/hooks/cpu-from-annotation"), built(t, "../../examples/hooks/gpu-environment")
		code, text, stderr := kubewasm(t, append(cluster, "0.5%", cheap, dear)...)
		back, _, _ := kubewasm(t, append(cluster, "0.5%", dear, cheap)...)
		if code+back != 2 || code == 1 {
			t.Errorf("exit codes %d and %d, want 2 and 0: %s", code, back, stderr)
		}
		if !strings.Contains(text, "OLD") || !strings.Contains(text, "FUNCTION") {
			t.Errorf("printed:\n%s", text)
		}
	})
	t.Run("every mistake is reported", func(t *testing.T) {
		_, _, stderr := kubewasm(t, "profile", "--max-increase", "much", "--top", "-1")
		for _, want := range []string{`"much" is no share`, "--max-increase needs --diff", "--top is -1", "want a recording and a module"} {
			if !strings.Contains(stderr, want) {
				t.Errorf("not printed: %s\n%s", want, stderr)
			}
		}
	})
}

// TestProfileOfARecording records a plugin that runs, and profiles the calls again.
func TestProfileOfARecording(t *testing.T) {
	zone, dir := built(t, "testdata/zone"), t.TempDir()
	tool := &tool{out: io.Discard, err: t.Output()}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f := tool.runFlags(flags)
	if err := flags.Parse([]string{"-f", "testdata/cluster.yaml", "--config", file(t, "c.yaml", "zone: b")}); err != nil {
		t.Fatal(err)
	}
	trial, err := tool.trial(t.Context(), flags, f, zone)
	if err != nil {
		t.Fatal(err)
	}
	var calls profiledFuel
	trial.cfg.Observer, trial.cfg.Record = &calls, &record.Config{Path: dir}
	trial.onLoad = func() { calls.fuel.Store(0) }
	if err := trial.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	code, text, stderr := kubewasm(t, "profile", "-o", "json", "--top", "0", dir, zone)
	var printed costs
	if err := json.Unmarshal([]byte(text), &printed); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	if printed.Fuel != calls.fuel.Load() || printed.Calls == 0 || stderr != "" {
		t.Errorf("the profile has %d fuel of %d calls, the calls had %d: %s", printed.Fuel, printed.Calls, calls.fuel.Load(), stderr)
	}
	code, _, stderr = kubewasm(t, "profile", "--diff", "--max-increase", "0%", dir, zone, zone)
	if code != 0 {
		t.Errorf("--diff: exit code %d: %s", code, stderr)
	}
	code, _, stderr = kubewasm(t, "profile", "--plugin", "other", dir, zone)
	if code != 1 || !strings.Contains(stderr, "has no calls to repeat") {
		t.Errorf("another plugin: exit code %d: %s", code, stderr)
	}
}
