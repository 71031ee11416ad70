package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// table is the document with the results of all languages.
const table = "../../docs/conformance.md"

var update = flag.Bool("update", false, "write docs/conformance.md from this run")

// outcomes are what came of the tests in each language: "yes", "no" or "not run".
var outcomes = struct {
	sync.Mutex
	of map[string]map[string]string // By the test, by the language.
}{of: map[string]map[string]string{}}

// record runs a test in a language, and keeps what came of it for the table.
func record(t *testing.T, language string, test func(t *testing.T)) {
	t.Helper()
	outcome := "not run"
	passed := t.Run(language, func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				outcome = "yes"
			}
		}()
		test(t)
	})
	if !passed {
		outcome = "no"
	}
	outcomes.Lock()
	defer outcomes.Unlock()
	if outcomes.of[t.Name()] == nil {
		outcomes.of[t.Name()] = map[string]string{}
	}
	outcomes.of[t.Name()][language] = outcome
}

// rows are the rows of the table: a test, and what it holds.
var rows = []struct{ test, holds string }{
	{"TestScheduler", "configuration, PreFilter, Filter, Score, NormalizeScore"},
	{"TestSchedulerThatDeclaresWhatItReads", "the same on a host that encodes the declared fields only"},
	{"TestCrossings", "each field of an object crosses once for each version"},
	{"TestQueue", "PreEnqueue, QueueSort, events, hints, SignPod"},
	{"TestNamedEvents", "events of custom resources, Activate, metrics, changes of objects, PreBind that waits"},
	{"TestCycle", "AddPod to PostBind, copies of cycles, the scheduler's handle"},
	{"TestGroup", "groups of Pods, potential victims, nominated Pods"},
	{"TestAdmission", "Validate, Mutate, look-ups"},
	{"TestConversions", "conversions"},
	{"TestHook", "hooks"},
	{"TestService", "a service and a host service of one's own"},
	{"TestEverythingIsCovered", "every function of the ABI is implemented, every host function imported"},
}

// checkTable writes the document with -update, and otherwise compares it, if all tests ran in all
// languages. It returns the code to exit with.
func checkTable(code int) int {
	text, whole := document()
	if code != 0 || !whole { // A part of the tests, or a toolchain is missing.
		return code
	}
	if *update {
		if err := os.WriteFile(table, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if old, err := os.ReadFile(table); err != nil || string(old) != text {
		fmt.Fprintf(os.Stderr, "%s is out of date: go test ./abi/conformance -update\n", table)
		return 1
	}
	return 0
}

// document returns the text of the document, and whether all tests ran.
func document() (text string, whole bool) {
	var b strings.Builder
	b.WriteString("# Conformance\n\nOne suite, [abi/conformance](../abi/conformance/doc.go), holds the SDK of each language against the [specification](../abi/SPEC.md): the same guests, written by each SDK, answer the same [cases](../abi/conformance/cases.yaml) in the hosts of kubewasm. The guests in WebAssembly text stand on the specification alone, and are four of the eight. `go test ./abi/conformance -update` wrote this table; without `-update` it fails where the table is another.\n\n| |")
	for _, l := range languages {
		fmt.Fprintf(&b, " %s |", l.name)
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(languages)) + "|\n")
	whole = true
	for _, row := range rows {
		of := outcomes.of[row.test]
		fmt.Fprintf(&b, "| %s |", row.holds)
		for _, l := range languages {
			outcome := of[l.name]
			if outcome == "" && l.guests != nil {
				outcome = "-"
			}
			whole = whole && outcome != "" && outcome != "not run"
			fmt.Fprintf(&b, " %s |", outcome)
		}
		b.WriteString("\n")
	}
	return b.String(), whole
}
