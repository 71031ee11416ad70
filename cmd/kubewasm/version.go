package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/kubewasm/kubewasm/abi"
)

func version(_ context.Context, t *tool, args []string) error {
	flags := t.flags("version")
	if err := flags.Parse(args); err != nil {
		return flagError(flags, err)
	}
	if flags.NArg() != 0 {
		return &usageError{fmt.Errorf("version: unexpected argument %q", flags.Arg(0))}
	}
	fmt.Fprintf(t.out, "kubewasm %s, ABI %s, %s %s/%s\n", moduleVersion(), abi.Marker, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// ownModule returns the module of which this program is a part, nil if the program does
// not know it.
func ownModule() *debug.Module {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == libraryPath {
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
