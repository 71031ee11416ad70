package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/host"
)

// nameless matches a function that has a number in place of its name.
var nameless = regexp.MustCompile(`\.\$\d+\(`)

// maxFrames is the number of functions of a stack that are printed.
const maxFrames = 8

// frames returns the stack of the guest at the first trap in err, a line for each function.
// For a guest in Go the lines have the file and the line of the source.
func frames(err error) (lines []string) {
	var trap *host.TrapError
	if !errors.As(err, &trap) {
		return nil
	}
	if lines = goFrames(trap.Output); lines != nil {
		return lines
	}
	for line := range strings.Lines(trap.Frames(maxFrames)) {
		lines = append(lines, "\tat "+strings.TrimSpace(line))
	}
	if slices.ContainsFunc(lines, nameless.MatchString) {
		lines = append(lines, "\thint: kubewasm build --debug keeps the names of functions, as run and test do of a directory")
	}
	return lines
}

// sdkPackages is the prefix of the functions that call a plugin.
const sdkPackages = "github.com/kubewasm/kubewasm/guest/"

// goFrames returns the stack of the goroutine that panicked, from the output of Go's runtime, which
// has a line for a function and one for its place in the source. Functions of the runtime, and of
// the SDK that called the plugin, are left out.
func goFrames(output string) (lines []string) {
	_, stack, ok := strings.Cut(output, "\ngoroutine ")
	if !ok {
		return nil
	}
	stack, _, _ = strings.Cut(stack, "\n\n") // The next goroutine.
	all := strings.Split(stack, "\n")[1:]
	own := 0 // The number of lines up to the last function of the plugin.
	for i := 0; i+1 < len(all) && len(lines) < maxFrames; i += 2 {
		function, place := all[i], strings.TrimSpace(all[i+1])
		if strings.HasPrefix(function, "panic(") || strings.HasPrefix(function, "runtime.") || strings.HasPrefix(function, "created by ") {
			continue
		}
		if end := strings.LastIndexByte(function, '('); end > 0 {
			function = function[:end]
		}
		place, _, _ = strings.Cut(place, " +0x")
		lines = append(lines, "\tat "+function+", "+place)
		if !strings.HasPrefix(function, sdkPackages) {
			own = len(lines)
		}
	}
	if own == 0 {
		return lines
	}
	return lines[:own]
}
