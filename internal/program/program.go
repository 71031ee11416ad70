// Package program holds what the programs of cmd share: the flags of the log and the version.
package program

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/internal/foreign"
)

// Log configures the log of a program.
type Log struct {
	// Level is the minimum level, and may change at any time.
	Level slog.LevelVar
	// Format is text or json.
	Format string
}

// Flags adds the flags -log-level and -log-format.
func (l *Log) Flags(flags *flag.FlagSet) {
	flags.Func("log-level", "log `level`: debug, info, warn or error; info logs refusals, warn failures of plugins, within a budget. logLevel in the configuration file goes before. Default info", func(text string) error {
		return l.Level.UnmarshalText([]byte(text))
	})
	l.Format = "json"
	flags.Func("log-format", "log `format`: json or text. Default json", func(text string) error {
		if text != "json" && text != "text" {
			return fmt.Errorf("want json or text")
		}
		l.Format = text
		return nil
	})
}

// Handler returns a handler that writes to w, where it escapes control characters of guests.
func (l *Log) Handler(w io.Writer) slog.Handler {
	options := &slog.HandlerOptions{Level: &l.Level}
	if l.Format == "text" {
		return slog.NewTextHandler(foreign.NewWriter(w), options)
	}
	return slog.NewJSONHandler(foreign.NewWriter(w), options)
}

// Build describes the program as it was built.
type Build struct {
	// Version is that of the module, (devel) if it was built in a checkout; Revision is the commit,
	// with a + if files were changed, empty if it is unknown.
	Version, Revision, Go string
}

// ThisBuild returns the Build of the running program.
func ThisBuild() Build {
	b := Build{Version: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	changed := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if changed && b.Revision != "" {
		b.Revision += "+"
	}
	return b
}

// Short returns the version and the revision.
func (b Build) Short() string { return strings.TrimSpace(b.Version + " " + b.Revision) }

// String returns the text of -version, without the name of the program.
func (b Build) String() string {
	text := b.Version
	if b.Revision != "" {
		text += " (" + b.Revision + ")"
	}
	return text + " " + b.Go + " " + runtime.GOOS + "/" + runtime.GOARCH
}

// Collector returns the metric kubewasm_build_info of a program.
func (b Build) Collector(program string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubewasm_build_info", Help: "1, with the version of the program as labels.",
		ConstLabels: prometheus.Labels{"program": program, "version": b.Version, "revision": b.Revision, "goversion": b.Go},
	}, func() float64 { return 1 })
}
