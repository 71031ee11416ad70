package main

import (
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/kubewasm/kubewasm/internal/nearest"
)

// packageComment is the package comment, of which each section is the help of a command.
//
//go:embed doc.go
var packageComment string

// help is the help of a command.
type help struct {
	// usage is the line after "Usage:", text the whole section.
	usage, text string
}

var commentMark = regexp.MustCompile(`(?m)^// ?`)

// helpOf returns the help of a command, empty if it has no section.
func helpOf(command string) help {
	text, _, _ := strings.Cut(packageComment, "\npackage ")
	for section := range strings.SplitSeq(commentMark.ReplaceAllString(text, ""), "\n# ") {
		_, section, _ = strings.Cut(section, "\n\n") // Without the heading.
		usage, ok := strings.CutPrefix(section, "Usage:\n\n\t")
		if usage, _, _ = strings.Cut(usage, "\n"); ok && strings.HasPrefix(usage, "kubewasm "+command) {
			return help{usage, strings.TrimSpace(section) + "\n"}
		}
	}
	return help{}
}

// overview prints what the program does and its commands.
func overview(w io.Writer) {
	fmt.Fprint(w, "Kubewasm starts, builds, inspects, runs and distributes plugins of Kubernetes components\nthat run as WebAssembly modules.\n\nUsage:\n\n\tkubewasm COMMAND [arguments]\n\nThe commands are:\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range commands {
		fmt.Fprintf(table, "  %s\t%s\n", c.name, c.summary)
	}
	_ = table.Flush() // There is no other place to write to.
	fmt.Fprint(w, "\n\"kubewasm help COMMAND\" describes a command with its flags and an example.\n")
}

// help prints the overview or the help of a command and returns the exit code.
func (t *tool) help(args []string) int {
	if len(args) == 0 {
		overview(t.out)
		return 0
	}
	h := helpOf(args[0])
	if h.text == "" {
		return t.unknown(args[0])
	}
	fmt.Fprint(t.out, h.text)
	return 0
}

// unknown reports a command that does not exist and returns the exit code.
func (t *tool) unknown(command string) int {
	var names []string
	for _, c := range commands {
		names = append(names, c.name)
	}
	fmt.Fprintf(t.err, "kubewasm: unknown command %q%s\n\"kubewasm help\" prints the commands.\n", command, nearest.Hint("; ", command, names))
	return 1
}
