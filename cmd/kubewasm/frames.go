package main

import (
	"errors"
	"strings"

	"github.com/kubewasm/kubewasm/host"
)

// maxFrames is how many functions of a stack are printed.
const maxFrames = 8

// frames returns where the guest of the first trap in err was, in lines of a function and,
// of a guest in Go, the line of its source.
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
	return lines
}

// sdkPackages is where the functions are that call a plugin.
const sdkPackages = "github.com/kubewasm/kubewasm/guest/"

// goFrames returns the functions of the goroutine that panicked, from what Go's runtime
// prints: a function to a line, and its place in the next one. Those of the runtime are
// left out, and those of the SDK that called the plugin.
func goFrames(output string) (lines []string) {
	_, stack, ok := strings.Cut(output, "\ngoroutine ")
	if !ok {
		return nil
	}
	stack, _, _ = strings.Cut(stack, "\n\n") // The next goroutine.
	all := strings.Split(stack, "\n")[1:]
	own := 0 // How many lines there are up to the last of the plugin.
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
