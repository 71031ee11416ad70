package main

import (
	"context"
	"errors"
	"fmt"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// uncovered are the directories whose exported names VERSIONING.md does not cover.
var uncovered = []string{"internal", "examples", "cmd"}

// lastTag returns the newest version of the root module in the history of a repository, empty without one.
func lastTag(ctx context.Context, repo string) (string, error) {
	out, err := run(ctx, repo, "git", "tag", "--list", "v*", "--merged", "HEAD")
	if err != nil {
		return "", err
	}
	tags := slices.DeleteFunc(strings.Fields(string(out)), func(tag string) bool { return semver.Canonical(tag) != tag })
	if len(tags) == 0 {
		return "", nil
	}
	return slices.MaxFunc(tags, semver.Compare), nil
}

// checkAPI compares the exported names of modules, by their directories, with those of the newest tag, by the rules
// of VERSIONING.md. A change that breaks importers needs its name in a line about breaking changes below Unreleased
// of CHANGELOG.md. A patch, if next is one, has no such change. It returns the tag, empty without one.
func checkAPI(ctx context.Context, repo, next string, dirs []string) (tag string, err error) {
	if tag, err = lastTag(ctx, repo); err != nil || tag == "" {
		return "", err
	}
	work, err := os.MkdirTemp("", "release-api-")
	if err != nil {
		return "", err
	}
	old := filepath.Join(work, "old")
	if _, err := run(ctx, repo, "git", "worktree", "add", "--quiet", "--detach", old, tag); err != nil {
		return "", errors.Join(err, os.RemoveAll(work))
	}
	defer func() {
		_, removed := run(context.WithoutCancel(ctx), repo, "git", "worktree", "remove", "--force", old)
		err = errors.Join(err, removed, os.RemoveAll(work))
	}()
	changelog, err := os.ReadFile(filepath.Join(repo, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	notes := breaking(string(changelog))
	var wrong []error
	for _, dir := range dirs {
		before, err := load(ctx, old, dir)
		if err != nil {
			return "", fmt.Errorf("%s of %s: %w", dir, tag, err)
		}
		after, err := load(ctx, repo, dir)
		if err != nil {
			return "", fmt.Errorf("%s: %w", dir, err)
		}
		for _, name := range broken(before, after) {
			switch {
			case semver.Prerelease(tag) == "" && semver.MajorMinor(next) == semver.MajorMinor(tag):
				wrong = append(wrong, fmt.Errorf("%s breaks importers of %s, so the next version is no patch such as %s", name, tag, next))
			case !named(notes, name):
				wrong = append(wrong, fmt.Errorf("%s breaks importers of %s, and no line about breaking changes below Unreleased of CHANGELOG.md names it", name, tag))
			}
		}
	}
	return tag, errors.Join(wrong...)
}

// breaking returns the lines of a changelog below Unreleased about breaking changes.
func breaking(changelog string) (lines []string) {
	_, text, _ := strings.Cut(changelog, "\n## Unreleased\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		if strings.Contains(line, "reaking") {
			lines = append(lines, line)
		}
	}
	return lines
}

// named reports whether a line has the last part of the name in a change such as "sched.Handle.Pending: removed",
// or the package if the whole of it was removed.
func named(lines []string, change string) bool {
	name, _, _ := strings.Cut(change, ":")
	end := `([^\w./]|\.\s|$)`
	if _, last, ok := strings.Cut(path.Base(name), "."); ok {
		name, end = last[strings.LastIndexByte(last, '.')+1:], `\b`
	}
	word := regexp.MustCompile(`(^|[^\w/])` + regexp.QuoteMeta(strings.Trim(name, "()*")) + end)
	return slices.ContainsFunc(lines, word.MatchString)
}

// load returns the packages of a module that VERSIONING.md covers, by their paths. The modules of the repository are taken
// from its directories.
func load(ctx context.Context, repo, dir string) (map[string]*types.Package, error) {
	modules, err := read(ctx, repo)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(modules, func(m *released) bool { return m.dir == dir })
	if i < 0 {
		return nil, nil // The module is not in this commit.
	}
	workspace := "off"
	// On the main branch the modules replace one another by directories; at a tag a workspace does it.
	if m := modules[i]; len(m.requires) != 0 && len(m.file.Replace) == 0 {
		used := map[string]bool{m.path(): true}
		text := "go " + m.file.Go.Version + "\n"
		for _, m := range slices.Backward(modules[:i+1]) {
			if used[m.path()] {
				text += "use " + filepath.Join(repo, m.dir) + "\n"
				for _, r := range m.requires {
					used[r] = true
				}
			}
		}
		work, err := os.MkdirTemp("", "release-work-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(work)
		workspace = filepath.Join(work, "go.work")
		if err := os.WriteFile(workspace, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	list, err := packages.Load(&packages.Config{
		Context: ctx, Dir: filepath.Join(repo, dir), Mode: packages.LoadTypes | packages.NeedModule,
		Env: append(os.Environ(), "GOWORK="+workspace, "GOFLAGS=", "GOOS=linux", "GOARCH=amd64"),
	}, "./...")
	if err != nil {
		return nil, err
	}
	byPath := map[string]*types.Package{}
	var wrong []error
	for _, p := range list {
		for _, e := range p.Errors {
			wrong = append(wrong, e)
		}
		parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, root), "/"), "/")
		if p.Name != "main" && !slices.Contains(uncovered, parts[0]) && !slices.Contains(parts, "internal") && !slices.Contains(parts, "testdata") {
			byPath[p.PkgPath] = p.Types
		}
	}
	return byPath, errors.Join(wrong...)
}

// broken returns the changes that break importers, each with the name of what changed.
func broken(before, after map[string]*types.Package) (changes []string) {
	for name, old := range before {
		short := strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
		if after[name] == nil {
			changes = append(changes, short+": removed")
			continue
		}
		for _, c := range apidiff.Changes(old, after[name]).Changes {
			if !c.Compatible {
				changes = append(changes, short+"."+c.Message)
			}
		}
	}
	slices.Sort(changes)
	return changes
}
