package main

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/minors"
)

// sameGuests fails unless each guest was the same bytes in the tests of all minors.
func sameGuests(results []*result) error {
	first := map[string]string{}
	for _, r := range results {
		for _, value := range r.attributes["guest"] {
			name, digest, _ := strings.Cut(value, " ")
			if other, ok := first[name]; ok && other != digest {
				return fmt.Errorf("guest %s: Kubernetes %s ran the SHA-256 %s, and another minor %s", name, r.minor, digest, other)
			}
			first[name] = digest
		}
	}
	return nil
}

// guests returns the names of the guests that ran, in order.
func (res *result) guests() (names []string) {
	for _, value := range res.attributes["guest"] {
		name, _, _ := strings.Cut(value, " ")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// under returns how much of a package, and of those below it, passed.
func (res *result) under(path string) (n int) {
	for p, count := range res.passed {
		if p == path || strings.HasPrefix(p, path+"/") {
			n += count
		}
	}
	return n
}

// row is the line of a minor in the table of what ran. It fails if a part did not.
func (res *result) row() (string, error) {
	e2e := func(name string) string { return "internal/testkit/e2e/" + name }
	one := func(key string) (string, error) {
		values := res.attributes[key]
		if len(values) != 1 {
			return "", fmt.Errorf("tests of Kubernetes %s name %d values of %s: %v", res.minor, len(values), key, values)
		}
		return values[0], nil
	}
	version, err := one("kubernetes")
	if err != nil {
		return "", err
	}
	modules, err := one("importer")
	if err != nil {
		return "", err
	}
	compared := 0
	for _, value := range res.attributes["compared"] {
		var pods int
		if _, err := fmt.Sscanf(value[strings.Index(value, " ")+1:], "%d Pods", &pods); err != nil {
			return "", fmt.Errorf("tests of Kubernetes %s: read %q: %w", res.minor, value, err)
		}
		compared += pods
	}
	for _, path := range []string{"sched/kube" + files(res.minor), e2e("scheduler"), e2e("admission"), e2e("differential"), e2e("neutral"), e2e("importer"), "admission", "host", "hooks"} {
		if res.under(path) == 0 {
			return "", fmt.Errorf("tests of Kubernetes %s: no test of %s passed", res.minor, path)
		}
	}
	if len(res.guests()) == 0 {
		return "", fmt.Errorf("tests of Kubernetes %s ran no guest", res.minor)
	}
	return fmt.Sprintf("| %s | %s | yes | yes | %d plugins, %d Pods | %s |",
		res.minor, version, len(res.attributes["compared"]), compared, modules), nil
}

// report returns the document.
func report(results []*result) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Compatibility

<!-- Written by go run ./internal/testkit/compatibility ("make kubernetes"). Do not edit. -->

A guest of ABI v1 runs, byte for byte, on each Kubernetes minor that is supported. This page is written by the tests that hold it; every change runs those of the newest minor and compares the lines, and every night runs all.

## What ran

| Kubernetes | Control plane, scheduler | Same modules in it | Admission by its API server | Random comparison with its own plugins | Imported beside |
|---|---|---|---|---|---|
`)
	for _, r := range results {
		row, err := r.row()
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(&b, row)
	}
	fmt.Fprintf(&b, `
- *Control plane*: etcd, kube-apiserver and a kube-scheduler with the guests, built from the modules of that version. Pods are bound, refused, preempted and gated, and a module is swapped under load.
- *Same modules*: the guests below. Each is built once in a run, and each minor's tests compare its SHA-256.
- *Random comparison*: guests that do what plugins of the scheduler do, on 1,000 random clusters, against the plugins of that minor: every phase of the scheduling cycle, and dry runs of preemption.
- *Imported beside*: a module that requires the Kubernetes modules of that version imports host, admission, hooks and the adapter of the minor. It builds, and no module of Kubernetes is lifted.
- The tests of all packages of admission, hooks, host and sched that import modules of Kubernetes pass with those of each minor.

## Extension points of the scheduler

`)
	points(&b)
	b.WriteString("\nA guest that has none but functions which a minor lacks is refused there with a sentence that names them; a guest that has others, too, is loaded, and the log says which functions are never called. `kubewasm inspect` says the same of a module before it is deployed.\n\n## Guests\n\n")
	for _, name := range results[0].guests() {
		var on []string
		for _, r := range results {
			if slices.Contains(r.guests(), name) {
				on = append(on, r.minor)
			}
		}
		fmt.Fprintf(&b, "- `%s`: %s\n", name, strings.Join(on, ", "))
	}
	fmt.Fprintf(&b, "\nBuilt with %s.\n", strings.Join(strings.Split(runtime.Version(), ".")[:2], "."))
	return b.Bytes(), nil
}

// points writes the table of extension points by minor.
func points(b *bytes.Buffer) {
	var all abi.Mask
	for _, m := range minors.All() {
		all |= m.Functions
	}
	b.WriteString("| Function of the guest |")
	for _, m := range minors.All() {
		b.WriteString(" " + m.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(minors.All())) + "\n")
	everywhere := all
	for _, m := range minors.All() {
		everywhere &= m.Functions
	}
	line := func(names string, f func(abi.Mask) bool) {
		b.WriteString("| " + names + " |")
		for _, m := range minors.All() {
			if f(m.Functions) {
				b.WriteString(" yes |")
			} else {
				b.WriteString(" - |")
			}
		}
		b.WriteString("\n")
	}
	line(names(everywhere.Functions()), func(m abi.Mask) bool { return m&everywhere == everywhere })
	// Functions that the same minors have share a line.
	shared := map[string][]abi.Function{}
	for _, f := range (all &^ everywhere).Functions() {
		key := ""
		for _, m := range minors.All() {
			key += fmt.Sprint(m.Functions.Has(f))
		}
		shared[key] = append(shared[key], f)
	}
	for _, key := range slices.Sorted(maps.Keys(shared)) {
		line(names(shared[key]), func(m abi.Mask) bool { return m.Has(shared[key][0]) })
	}
}

func names(functions []abi.Function) string {
	var list []string
	for _, f := range functions {
		list = append(list, "`"+f.String()+"`")
	}
	return strings.Join(list, ", ")
}

// compare returns an error that names everything of the results that the document lacks:
// lines of minors, extension points and guests.
func compare(document string, results []*result) error {
	lines := pointLines()
	for _, r := range results {
		row, err := r.row()
		if err != nil {
			return err
		}
		lines = append(lines, row)
	}
	for _, name := range results[0].guests() {
		lines = append(lines, "- `"+name+"`:")
	}
	var lacks []string
	for _, line := range lines {
		if !strings.Contains(document, line) {
			lacks = append(lacks, strconv.Quote(line))
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("docs/compatibility.md is out of date, run make kubernetes: it lacks %s", strings.Join(lacks, ", "))
	}
	return nil
}

// pointLines returns the lines of the table of extension points, which follow from the code
// alone.
func pointLines() []string {
	var b bytes.Buffer
	points(&b)
	return strings.Split(strings.TrimSpace(b.String()), "\n")
}
