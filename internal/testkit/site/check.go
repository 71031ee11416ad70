package main

import (
	"fmt"
	"html"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	reference = regexp.MustCompile(`<(?:a|img|link|script)\s[^>]*?\b(?:href|src)="([^"]*)"`)
	identity  = regexp.MustCompile(`\sid="([^"]*)"`)
	fetched   = regexp.MustCompile(`<(?:img|script|link)\s[^>]*?\b(?:src|href)="(?:https?:)?//|@import|url\(['"]?https?:`)
)

// check returns an error for each link to a page, a file or an anchor that dir, a site below the path base,
// does not have, and for each page that fetches something from another server.
func check(dir, base string) (errs []error) {
	ids := map[string][]string{} // By the path of the page.
	texts := map[string]string{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		ids[rel] = nil
		if path.Ext(rel) != ".html" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		texts[rel] = string(text)
		for _, m := range identity.FindAllStringSubmatch(texts[rel], -1) {
			ids[rel] = append(ids[rel], html.UnescapeString(m[1]))
		}
		return nil
	})
	if err != nil {
		return []error{err}
	}
	for name, text := range texts {
		if m := fetched.FindString(text); m != "" {
			errs = append(errs, fmt.Errorf("%s fetches from another server: %s", name, m))
		}
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			to, err := url.Parse(html.UnescapeString(m[1]))
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
				continue
			}
			if to.Scheme != "" || to.Host != "" {
				continue
			}
			target := name
			if to.Path != "" {
				full := path.Join(base, path.Dir(name), to.Path)
				if strings.HasPrefix(to.Path, "/") {
					full = path.Clean(to.Path)
				}
				if full == path.Clean(base) {
					full = path.Join(base, "index.html")
				}
				target = strings.TrimPrefix(full, base)
			}
			found, ok := ids[target]
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("%s links to %s, which does not exist", name, m[1]))
			case to.Fragment != "" && !slices.Contains(found, to.Fragment):
				errs = append(errs, fmt.Errorf("%s links to %s, which has no such heading", name, m[1]))
			}
		}
	}
	if len(texts) == 0 {
		errs = append(errs, fmt.Errorf("%s has no pages", dir))
	}
	return errs
}
