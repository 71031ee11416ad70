// Command house prints the figures that tell whether a small team can keep the repository: its
// lines, packages and exported names, and the imports that run against the order of its rooms.
//
//	go run ./internal/testkit/house        # the figures
//	go run ./internal/testkit/house -v     # with the things that were counted
//
// Run it from the root. It ends with status 1 if a figure is above its bound. The bounds are in
// internal/testkit/layout/measure.go, and the tests there hold them.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/kubewasm/kubewasm/internal/testkit/layout"
)

func main() {
	verbose := flag.Bool("v", false, "print the things that were counted")
	flag.Parse()
	figures, err := layout.Measure(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "today\tbound\ttarget\t  ")
	exit := 0
	for _, f := range figures {
		target := "-"
		if f.Target != layout.NoTarget {
			target = strconv.Itoa(f.Target)
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t  %s\n", f.Value, f.Bound, target, f.Name)
		if f.Value > f.Bound {
			exit = 1
		}
	}
	w.Flush()
	for _, f := range figures {
		if *verbose && len(f.Items) != 0 {
			fmt.Printf("\n%s:\n", f.Name)
			for _, item := range f.Items {
				fmt.Println("  " + item)
			}
		}
	}
	os.Exit(exit)
}
