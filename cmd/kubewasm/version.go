package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/abi"
)

func version(t *tool, flags *pflag.FlagSet) action {
	output := outputFlag(flags)
	return func(_ context.Context, args []string) error {
		if _, err := atMost(flags, args, 0); err != nil {
			return err
		}
		about := struct {
			Version  string `json:"version"`
			ABI      string `json:"abi"`
			Go       string `json:"go"`
			Platform string `json:"platform"`
		}{moduleVersion(), abi.Marker, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		return output.print(t, result{value: about, text: func(w io.Writer) error {
			_, err := fmt.Fprintln(w, versionLine())
			return err
		}})
	}
}

// versionLine returns the version of the program and its parts in a line.
func versionLine() string {
	return fmt.Sprintf("kubewasm %s, ABI %s, %s %s/%s", moduleVersion(), abi.Marker, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// ownModule returns the module of which this program is a part, nil if the program does
// not know it.
func ownModule() *debug.Module { return moduleOf(commandPath) }

// libraryModule returns the module of the library, nil if it is not known.
func libraryModule() *debug.Module { return moduleOf(libraryPath) }

func moduleOf(path string) *debug.Module {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == path {
			return m
		}
	}
	return nil
}

// moduleVersion returns the version of the module, "(devel)" if it was built from a
// directory without version control.
func moduleVersion() string {
	if m := ownModule(); m != nil {
		return cmp.Or(m.Version, "(devel)")
	}
	return "(devel)"
}
