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
//
// The directory dist of the repository gets the files of the release: archives of the programs with their
// SPDX documents, image layouts with images, the chart and modules, and SHA256SUMS. Their bytes depend on the commit, the version and
// the release of Go alone. Signatures are by the key of -key, or by a key that is made for this purpose and
// dropped; -unsigned leaves them to the workflow of the forge, which makes the files of a pushed tag
// by -tagged.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	keyFile := flag.String("key", "", "sign by the private key in this `file`: ECDSA in PEM")
	unsigned := flag.Bool("unsigned", false, "make no signatures")
	atTag := flag.Bool("tagged", false, "make the files of the tag that is checked out in DIR, instead of a new repository")
	only := flag.String("programs", "", "make the command and these programs, separated by commas, for Linux alone: a snapshot to try, in a part of the time")
	compare := flag.Bool("compare", false, "compare exported names with those of the last tag, by the rules of VERSIONING.md, instead of a release")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: release [-key FILE | -unsigned] [-tagged] [-programs NAMES] VERSION DIR\n       release -compare")
		os.Exit(2)
	}
	flag.Parse()
	if *compare {
		if err := compareAll(context.Background(), ""); err != nil {
			fmt.Fprintln(os.Stderr, "release:", err)
			os.Exit(1)
		}
		return
	}
	if flag.NArg() != 2 || *unsigned && *keyFile != "" || *atTag && *only != "" {
		flag.Usage()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tags, err := release(ctx, flag.Arg(0), flag.Arg(1), *keyFile, *only, *unsigned, *atTag)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run.
	}
	for _, tag := range tags {
		fmt.Println("git push origin", tag)
	}
}

// release makes the repository and the files of a release, and returns the tags. only are the programs that are made,
// all if it is empty.
func release(ctx context.Context, version, dir, keyFile, only string, unsigned, atTag bool) ([]string, error) {
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	var tags []string
	if atTag {
		tags, err = tagged(ctx, dir, version)
	} else if err = compareAll(ctx, version); err == nil {
		tags, err = prepare(ctx, "../../..", version, dir)
	}
	if err != nil {
		return nil, err
	}
	list, err := programs(dir)
	if err == nil && only != "" {
		list, err = choose(list, strings.Split(only, ","))
	}
	if err != nil {
		return nil, err
	}
	guests, err := guestsOf(dir, list)
	if err != nil {
		return nil, err
	}
	m, err := makeDist(ctx, dir, version, list, guests)
	if err != nil || unsigned {
		return tags, err
	}
	return tags, m.sign(ctx, key)
}

// compareAll compares the exported names of all modules with those of the last tag. next is the version to be made,
// empty if it is not known.
func compareAll(ctx context.Context, next string) error {
	repo, err := filepath.Abs("../../..")
	if err != nil {
		return err
	}
	modules, err := read(ctx, repo)
	if err != nil {
		return err
	}
	var dirs []string
	for _, m := range modules {
		dirs = append(dirs, m.dir)
	}
	tag, err := checkAPI(ctx, repo, next, dirs)
	if err == nil {
		fmt.Fprintln(os.Stderr, "compared with", cmp.Or(tag, "nothing: there is no tag"))
	}
	return err
}

// errDirty reports that a work tree has changes.
var errDirty = errors.New("the work tree has changes that are not committed")
