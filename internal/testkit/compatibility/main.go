// Command compatibility runs the tests that hold what kubewasm promises for each Kubernetes
// minor, and writes what they did to docs/compatibility.md.
//
//	go run ./internal/testkit/compatibility                    # all minors; writes the document
//	go run ./internal/testkit/compatibility -minors=1.35,1.37  # these; compares with the document
//	go run ./internal/testkit/compatibility -quick -minors=1.37 # with the Kubernetes of internal/testkit/e2e alone
//
// Every minor runs the same modules of guests: the first test that needs one builds it, and
// the others fail if its SHA-256 has changed since.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/internal/minors"
)

// document is the file that is written, from the root of the repository.
const document = "docs/compatibility.md"

func main() {
	minors := flag.String("minors", "", "the minors to test, separated by commas; all without")
	write := flag.Bool("write", false, "write the document even if -minors are not all")
	verbose := flag.Bool("v", false, "print what the tests print")
	quick := flag.Bool("quick", false, "compile the Kubernetes of internal/testkit/e2e and no other patch release, and of the root's packages test those that read and watch objects by their Go types")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *minors, &runner{verbose: *verbose, quick: *quick}, *write); err != nil {
		fmt.Fprintln(os.Stderr, "compatibility:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, chosen string, r *runner, write bool) error {
	var names []string
	for _, m := range minors.All() {
		names = append(names, m.Name)
	}
	all := names
	if chosen != "" {
		names = strings.Split(chosen, ",")
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("choose minors: %q is none of %s", name, strings.Join(all, ", "))
		}
	}
	guests, err := os.MkdirTemp("", "kubewasm-guests-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(guests)
	r.guests = guests
	var results []*result
	var errs []error
	for _, name := range names {
		result, err := r.test(ctx, name)
		results, errs = append(results, result), append(errs, err)
	}
	errs = append(errs, sameGuests(results))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if chosen == "" || write {
		text, err := report(results)
		if err != nil {
			return err
		}
		return os.WriteFile(document, text, 0o644)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	return compare(string(text), results)
}
