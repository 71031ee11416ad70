package profile

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Profile describes the fuel of a guest's calls.
type Profile struct {
	// Plugin is the name of the plugin, and Digest the SHA-256 of its module in hexadecimal.
	Plugin, Digest string
	// Start and Duration are the time in which the calls were made.
	Start    time.Time
	Duration time.Duration
	// Calls is the number of calls.
	Calls int64
	// Samples are the call paths, each once, those with the most fuel first.
	Samples []Sample
}

// Sample is a call path, with the fuel and memory of its last function itself.
type Sample struct {
	// Stack are the functions, the innermost first.
	Stack []*Function
	// Fuel is the fuel of the innermost function, without that of its callees.
	Fuel int64
	// Bytes is the number of bytes by which it let the memory grow.
	Bytes int64
}

// Function is a function of a guest, or a host function.
type Function struct {
	// Name is the name in the idiom of the language: a function of Rust is named by its path.
	Name string
	// File and Line are the place where it begins; empty and 0 if the module does not contain it.
	File string
	Line int
}

// Fuel returns the fuel of all calls.
func (p *Profile) Fuel() (n int64) {
	for i := range p.Samples {
		n += p.Samples[i].Fuel
	}
	return n
}

// Bytes returns the growth of the memory.
func (p *Profile) Bytes() (n int64) {
	for i := range p.Samples {
		n += p.Samples[i].Bytes
	}
	return n
}

// Cost is the cost of a function in all its call paths.
type Cost struct {
	// Function is its name.
	Function string `json:"function"`
	// Flat is the fuel of the function itself. Cumulative includes its callees, once for each path
	// with the function, even if it is there several times.
	Flat       int64 `json:"flat"`
	Cumulative int64 `json:"cumulative"`
	// Bytes is the number of bytes by which it let the memory grow.
	Bytes int64 `json:"bytes,omitempty"`
}

// Top returns the n functions with the most flat fuel, sorted by name where it is equal; all if n
// is 0.
func (p *Profile) Top(n int) []Cost {
	costs := p.costs()
	list := slices.SortedFunc(maps.Values(costs), func(a, b *Cost) int {
		return cmp.Or(cmp.Compare(b.Flat, a.Flat), cmp.Compare(b.Cumulative, a.Cumulative), cmp.Compare(a.Function, b.Function))
	})
	if n == 0 || n > len(list) {
		n = len(list)
	}
	top := make([]Cost, n)
	for i := range top {
		top[i] = *list[i]
	}
	return top
}

// costs returns the cost of each function.
func (p *Profile) costs() map[string]*Cost {
	costs := map[string]*Cost{}
	seen := map[string]int{}
	for i := range p.Samples {
		s := &p.Samples[i]
		for n, f := range s.Stack {
			c := costs[f.Name]
			if c == nil {
				c = &Cost{Function: f.Name}
				costs[f.Name] = c
			}
			if n == 0 {
				c.Flat += s.Fuel
				c.Bytes += s.Bytes
			}
			if seen[f.Name] != i+1 {
				seen[f.Name] = i + 1
				c.Cumulative += s.Fuel
			}
		}
	}
	return costs
}
