// Command site builds the documentation site from the documents of the repository: VitePress, locked by
// docs/site/package-lock.json, with its own theme and search.
//
//	go run ./internal/testkit/site [-version VERSION] [-versions VERSION,…] [-url URL] OUT
//
// Run it from the root. It needs git, Go and npm. It writes the pages into docs/site/src: the documents
// with their links changed, the longest cut at their headings, and the reference, which it generates from
// the schemas, the custom resource definitions, the help of the command and the documentation of packages.
// Then it builds OUT, and checks every link and anchor in it. The order of the pages is that of docs/README.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	version := flag.String("version", "main", "the tag or branch of the documents")
	versions := flag.String("versions", "", "the versions in the switcher, newest first, separated by commas; -version alone if empty")
	site := flag.String("url", "", "the URL below which each version is published; the site is made for the root of a server if empty")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *version, *versions, *site); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// run builds the site of the repository in the current directory in the directory out.
func run(out, version, versions, site string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	base := "/"
	if site != "" {
		u, err := url.Parse(site)
		if err != nil {
			return err
		}
		base = strings.TrimSuffix(u.Path, "/") + "/" + version + "/"
	}
	list := []string{version}
	if versions != "" {
		list = strings.Split(versions, ",")
	}
	s, err := read(".", version)
	if err != nil {
		return err
	}
	commands, err := commands()
	if err != nil {
		return err
	}
	s.pages = append(s.pages, commands)
	if err := s.write("docs/site/src", list, strings.TrimSuffix(site, "/")); err != nil {
		return err
	}
	for _, args := range [][]string{{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"}, {"npx", "--no-install", "vitepress", "build"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = "docs/site"
		cmd.Env = append(os.Environ(), "KUBEWASM_SITE_OUT="+out, "KUBEWASM_SITE_BASE="+base)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
	}
	return errors.Join(check(out, base)...)
}
