// Command bench measures kubewasm and what it is compared with, in one run and
// in turns, so that the ratios hold on a machine that is busy with other things.
//
//	go run -C internal/bench . [-only host|guest|sched|state|changing|admission|hooks|service|change|languages|oci|density|programs|random|scale|policyserver|audit|soak] [-soak 1m] [-idle 6m]
//
// It prints a row for each measurement, also of those that ended before an error or a signal,
// and exits with 0 whenever it could
// measure: a figure that falls short of its target is a finding, no failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// groups are the parts of the benchmark, in the order in which they run.
var groups = []struct {
	name string
	run  func(*bench) error
}{
	{"host", benchHost},
	{"isolation", benchIsolation},
	{"shared", benchShared},
	{"guest", benchGuest},
	{"sched", benchSched},
	{"state", benchState},
	{"changing", benchChanging},
	{"admission", benchAdmission},
	{"hooks", benchHooks},
	{"service", benchService},
	{"change", benchChange},
	{"languages", benchLanguages},
	{"oci", benchOCI},
	{"density", benchDensity},
	{"programs", benchPrograms},
	{"random", benchRandom},
	{"scale", benchScale},
	{"policyserver", benchPolicyServer},
	{"audit", benchAudit},
	{"soak", benchSoak},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if text := os.Getenv(densityVariable); text != "" {
		err = runDensity(ctx, text)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "run one `group`: "+strings.Join(names, ", "))
	soak := flags.Duration("soak", time.Minute, "how long the soak takes")
	idle := flags.Duration("idle", 6*time.Minute, "how long programs are idle; the runtime closes idle instances after 5m")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *only != "" && !slices.Contains(names, *only) {
		return fmt.Errorf("-only %s: no such group; there are %s", *only, strings.Join(names, ", "))
	}
	b := &bench{ctx: ctx, soak: *soak, idle: *idle}
	for _, g := range groups {
		if *only != "" && g.name != *only {
			continue
		}
		if err := g.run(b); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", g.name, err), b.print(out))
		}
	}
	return b.print(out)
}

// bench collects the rows.
type bench struct {
	ctx  context.Context
	rows []row
	// soak is how long the soak takes.
	soak time.Duration
	// idle is how long programs are idle.
	idle time.Duration
}

// row is one line of the table.
type row struct {
	what, ours, against, theirs, ratio, target string
	ok                                         bool
}

// figure is the result of one side of a measurement.
type figure struct {
	time   time.Duration // Per operation.
	allocs float64       // Per operation.
}

func (f figure) String() string { return fmt.Sprintf("%s, %.3g allocs", short(f.time), f.allocs) }

// target is what our side should keep to. Zero fields are not asked for.
type target struct {
	time time.Duration
	// ratio is the maximum of our time divided by that of the other side.
	ratio float64
	// beyond is the maximum of our time without that of the other side.
	beyond time.Duration
	// noAllocs asks for no allocation at all, allocs for at most so many.
	noAllocs bool
	allocs   float64
}

func (t target) String() string {
	var parts []string
	if t.time != 0 {
		parts = append(parts, "<= "+short(t.time))
	}
	if t.ratio != 0 {
		parts = append(parts, fmt.Sprintf("<= %.3gx", t.ratio))
	}
	if t.beyond != 0 {
		parts = append(parts, "<= theirs + "+short(t.beyond))
	}
	if t.noAllocs {
		parts = append(parts, "0 allocs")
	}
	if t.allocs != 0 {
		parts = append(parts, fmt.Sprintf("<= %.4g allocs", t.allocs))
	}
	return strings.Join(parts, ", ")
}

const (
	rounds    = 21
	roundTime = 20 * time.Millisecond
)

// comparison is a row to measure. Each function runs its operation n times.
type comparison struct {
	what    string
	target  target
	ours    func(n int)
	against string
	theirs  func(n int)
}

// compare measures ours and theirs in turns, each for as many rounds, and adds
// a row with the medians. Each function runs its operation n times.
func (b *bench) compare(what string, t target, ours func(n int), against string, theirs func(n int)) {
	b.compareAll(comparison{what, t, ours, against, theirs})
}

// compareAll does the same for several rows, whose rounds also take turns, so
// that they can be compared with one another.
func (b *bench) compareAll(list ...comparison) {
	sides := make([][2]side, len(list))
	for n, c := range list {
		sides[n] = [2]side{{run: c.ours, count: calibrate(c.ours)}, {run: c.theirs, count: calibrate(c.theirs)}}
	}
	ratios := make([][]float64, len(list))
	for range rounds {
		for n := range sides {
			ratios[n] = append(ratios[n], sides[n][0].round()/sides[n][1].round())
		}
	}
	for n, c := range list {
		our, their, ratio, t := sides[n][0].figure(), sides[n][1].figure(), median(ratios[n]), c.target
		// The runtime itself allocates a little now and then.
		ok := (t.time == 0 || our.time <= t.time) && (t.ratio == 0 || ratio <= t.ratio) && (t.beyond == 0 || our.time-their.time <= t.beyond) && (!t.noAllocs || our.allocs < 0.01) && (t.allocs == 0 || our.allocs <= t.allocs)
		b.rows = append(b.rows, row{
			what: c.what, ours: our.String(), against: c.against, theirs: their.String(),
			ratio: fmt.Sprintf("%.3gx", ratio), target: t.String(), ok: ok,
		})
	}
}

// side is one side of a row, with the function that is measured.
type side struct {
	run    func(n int)
	count  int
	times  []float64
	allocs float64
}

// round runs the operation once more and returns the nanoseconds that it took.
func (s *side) round() float64 {
	took, mallocs := once(s.run, s.count)
	s.times = append(s.times, float64(took)/float64(s.count))
	s.allocs += mallocs / float64(s.count) / rounds
	return s.times[len(s.times)-1]
}

func (s *side) figure() figure { return figure{time.Duration(median(s.times)), s.allocs} }

// calibrate returns how many operations fill a round.
func calibrate(f func(int)) int {
	for n := 1; ; {
		took, _ := once(f, n)
		if took >= roundTime/4 {
			return max(1, int(float64(n)*float64(roundTime)/float64(took)))
		}
		n = max(n+1, int(min(100, float64(roundTime)/2/max(1, float64(took)))*float64(n)))
	}
}

// once runs f with the garbage of others out of the way.
func once(f func(int), n int) (took time.Duration, mallocs float64) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f(n)
	took = time.Since(start)
	runtime.ReadMemStats(&after)
	return took, float64(after.Mallocs - before.Mallocs)
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// short writes a duration with three digits.
func short(d time.Duration) string {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
}

func (b *bench) print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tOURS\tCOMPARED WITH\tTHEIRS\tRATIO\tTARGET\tVERDICT")
	for _, r := range b.rows {
		verdict := "short"
		if r.target == "" {
			verdict = "" // It is there to compare the others with.
		} else if r.ok {
			verdict = "ok"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.ours, r.against, r.theirs, r.ratio, r.target, verdict)
	}
	return t.Flush()
}
