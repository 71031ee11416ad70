package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubewasm/kubewasm/internal/foreign"
)

// verdicts are the answers of a plugin, in the form that run prints.
type verdicts struct {
	Plugin   string    `json:"plugin"`
	Verdicts []verdict `json:"verdicts"`
	// Notes follow the verdicts.
	Notes []string `json:"notes,omitempty"`

	progress *progress
}

// verdict is the answer to a call.
type verdict struct {
	// Object names the object. Node is the Node of a scheduler plugin's call, or the extension
	// point in parentheses.
	Object  string `json:"object"`
	Node    string `json:"node,omitempty"`
	Verdict string `json:"verdict"`
	// Score is empty unless the Node has one.
	Score string `json:"score,omitempty"`
	// Cost is nil if the plugin was not asked.
	Cost     *callCost `json:"cost,omitempty"`
	Message  string    `json:"message,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`

	// heads are the heads of the columns of the text.
	heads []string
	// bad is set if the exit code is not 0 for this verdict.
	bad bool
}

// callCost is the cost of a call.
type callCost struct {
	Took time.Duration `json:"nanoseconds"`
	Fuel int64         `json:"fuel"`
}

// The heads of the columns of each kind of plugin.
var (
	schedulerHeads = []string{"POD", "NODE", "VERDICT", "SCORE", "TIME", "FUEL", "REASON"}
	admissionHeads = []string{"OBJECT", "VERDICT", "TIME", "FUEL", "MESSAGE"}
	hookHeads      = []string{"ABOUT", "VERDICT", "TIME", "FUEL", "DECISION"}
)

func (v *verdicts) add(one verdict) {
	v.progress.add()
	v.Verdicts = append(v.Verdicts, one)
}

// asked reports whether the plugin was called for an object.
func (v *verdicts) asked() bool {
	return slices.ContainsFunc(v.Verdicts, func(one verdict) bool { return one.Cost != nil })
}

// writeText writes a line for each verdict.
func (v *verdicts) writeText(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var heads []string
	for _, one := range v.Verdicts {
		if !slices.Equal(heads, one.heads) {
			heads = one.heads
			fmt.Fprintln(table, strings.Join(heads, "\t"))
		}
		took, fuel := "", ""
		if one.Cost != nil {
			took, fuel = one.Cost.Took.Round(100*time.Nanosecond).String(), fmt.Sprint(one.Cost.Fuel)
		}
		foreign.Fprintf(table, "%s\t", one.Object)
		if len(heads) == len(schedulerHeads) {
			foreign.Fprintf(table, "%s\t%s\t%s\t", one.Node, one.Verdict, one.Score)
		} else {
			foreign.Fprintf(table, "%s\t", one.Verdict)
		}
		foreign.Fprintf(table, "%s\t%s\t%s\n", took, fuel, one.Message)
		for _, warning := range one.Warnings {
			foreign.Fprintf(table, "%sWarning: %s\n", tabs[:len(heads)-1], warning)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, note := range v.Notes {
		fmt.Fprintln(w, note)
	}
	return nil
}

const tabs = "\t\t\t\t\t\t\t"

// writeJUnit writes a case for each verdict, which fails if the exit code is not 0 for it.
func (v *verdicts) writeJUnit(w io.Writer) error {
	s := &suite{Name: v.Plugin}
	var all time.Duration
	for _, one := range v.Verdicts {
		name, took := strings.TrimSpace(one.Object+" "+one.Node), time.Duration(0)
		if one.Cost != nil {
			took = one.Cost.Took
		}
		all += took
		if one.bad {
			s.add(name, took, strings.TrimSuffix(one.Verdict+": "+one.Message, ": "))
		} else {
			s.add(name, took)
		}
	}
	s.Time = seconds(all)
	return s.writeJUnit(w)
}
