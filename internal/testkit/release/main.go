// Command release prepares the release of a version: a repository with a commit in which the
// modules of this repository require one another in that version, and with the tags of all of them.
//
//	go run -C internal/testkit/release . v0.1.0 /tmp/release
//
// On the main branch the modules replace one another by directories, which go install refuses and
// importers do not see. The commit has neither these replacements nor another change, and the sums
// of the modules that each requires. Push the tags in the order in which the command prints them: a
// module is built by those before it.
//
// Before the tags are pushed, everything can be tried from the repository:
//
//	export GOPRIVATE=github.com/kubewasm/kubewasm GIT_CONFIG_COUNT=1
//	export GIT_CONFIG_KEY_0=url.file:///tmp/release.insteadOf GIT_CONFIG_VALUE_0=https://github.com/kubewasm/kubewasm
//	go install github.com/kubewasm/kubewasm/cmd/kubewasm@v0.1.0
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: release VERSION DIR")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tags, err := prepare(ctx, "../../..", os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run.
	}
	for _, tag := range tags {
		fmt.Println("git push origin", tag)
	}
}

// errDirty reports that a work tree has changes.
var errDirty = errors.New("the work tree has changes that are not committed")
