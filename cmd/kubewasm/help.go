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

// packageComment is the package comment, each section of which is the help of a command.
//
//go:embed doc.go
var packageComment string

// help is the help of a command.
type help struct {
	// usage is the line after "Usage:", text the whole section.
	usage, text string
}

// flagText matches a flag in a section of doc.go: a shorthand, the name, and the text.
var flagText = regexp.MustCompile(`(?m)^\t(?:-(\w), )?--([\w-]+)(?: .*)?\n((?:\t\t.*\n?)+)`)

// flags returns the first sentence about each flag.
func (h help) flags() map[string]string {
	texts := map[string]string{}
	for _, m := range flagText.FindAllStringSubmatch(h.text, -1) {
		text, _, _ := strings.Cut(strings.Join(strings.Fields(m[3]), " ")+" ", ". ")
		texts[m[2]] = strings.TrimSuffix(text, ".")
	}
	return texts
}

var commentMark = regexp.MustCompile(`(?m)^// ?`)

// helpOf returns the help of a command, empty if it has no section.
func helpOf(command string) help {
	text, _, _ := strings.Cut(packageComment, "\npackage ")
	for section := range strings.SplitSeq(commentMark.ReplaceAllString(text, ""), "\n# ") {
		_, section, _ = strings.Cut(section, "\n\n") // Without the heading.
		usage, ok := strings.CutPrefix(section, "Usage:\n\n\t")
		if usage, _, _ = strings.Cut(usage, "\n"); ok && strings.HasPrefix(usage+" ", "kubewasm "+command+" ") {
			return help{usage, strings.TrimSpace(section) + "\n"}
		}
	}
	return help{}
}

// overview prints the purpose of the program and its commands.
func overview(w io.Writer) {
	fmt.Fprint(w, "Kubewasm starts, builds, inspects, runs and distributes plugins of Kubernetes components\nthat run as WebAssembly modules.\n\nUsage:\n\n\tkubewasm COMMAND [arguments]\n\nThe commands are:\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range commands {
		fmt.Fprintf(table, "  %s\t%s\n", c.name, c.summary)
	}
	_ = table.Flush() // There is no other place to write to.
	fmt.Fprint(w, "\n\"kubewasm help COMMAND\" describes a command with its flags and an example.\n")
}

// help prints the overview or the help of a command.
func (t *tool) help(args []string) error {
	if len(args) == 0 {
		overview(t.out)
		return nil
	}
	h := helpOf(args[0])
	if h.text == "" {
		return t.unknown(args[0])
	}
	fmt.Fprint(t.out, h.text)
	return nil
}

// otherNames has what takes the place of commands of other tools.
var otherNames = map[string]string{
	"verify": "pull and inspect verify signatures, with --key FILE", "login": "docker login keeps credentials for push and pull",
	"init": `did you mean "new"?`, "create": `did you mean "new"?`, "compile": `did you mean "build"?`, "generate": `did you mean "gen"?`,
	"apply": `"kubewasm manifests" writes what kubectl apply takes`, "deploy": `"kubewasm manifests" writes what kubectl apply takes`,
}

// unknown reports a command that does not exist.
func (t *tool) unknown(command string) error {
	var names []string
	for _, c := range commands {
		names = append(names, c.name)
	}
	hint := nearest.Hint("; ", command, names)
	if meant := otherNames[command]; meant != "" {
		hint = "; " + meant
	}
	fmt.Fprintf(t.err, "kubewasm: unknown command %q%s\n\"kubewasm help\" prints the commands.\n", command, hint)
	return errPrinted
}
