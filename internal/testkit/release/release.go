package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// root is the path of the root module.
const root = "github.com/kubewasm/kubewasm"

// unreleased are the directories of modules that nobody imports or installs by a version: they build
// and check the project, are read as examples, replace modules of Kubernetes, as only a checkout
// can, or are programs whose tests need one of these. What lies below them is not released, either, but for inUnreleased.
var unreleased = []string{"charts", "cmd/kubewasm-controller", "cmd/kubewasm-scheduler", "examples", "hooks/runtime/e2e", "host/oci/e2e", "internal/bench", "internal/testkit"}

// inUnreleased are the modules below unreleased ones that others require.
var inUnreleased = []string{"cmd/kubewasm-controller/api"}

// isReleased reports whether the module in a directory of the repository gets a tag.
func isReleased(dir string) bool {
	return slices.Contains(inUnreleased, dir) ||
		!slices.ContainsFunc(unreleased, func(u string) bool { return dir == u || strings.HasPrefix(dir, u+"/") })
}

// released is a module to be released.
type released struct {
	// dir is relative to the repository.
	dir  string
	file *modfile.File
	// requires are the directories of the modules of the repository that it requires.
	requires []string
}

// path returns the module's path.
func (m *released) path() string { return m.file.Module.Mod.Path }

// tag returns the name of the tag of a version.
func (m *released) tag(version string) string {
	return strings.TrimPrefix(path.Join(m.dir, version), "./")
}

// prepare makes a repository in dir, which must not exist, of the commit that is checked out in
// from. It returns the tags that it made, a module's behind those of the modules that it requires.
func prepare(ctx context.Context, from, version, dir string) (tags []string, err error) {
	if semver.Canonical(version) != version || semver.Major(version) != "v0" && semver.Major(version) != "v1" {
		return nil, fmt.Errorf("%s is no version such as v0.1.0", version)
	}
	if out, err := run(ctx, from, "git", "status", "--porcelain", "--untracked-files=no"); err != nil || len(out) != 0 {
		return nil, errors.Join(err, errDirty)
	}
	if _, err := os.Lstat(dir); err == nil {
		return nil, fmt.Errorf("%s exists", dir)
	}
	if _, err := run(ctx, from, "git", "clone", "--quiet", "--no-hardlinks", ".", dir); err != nil {
		return nil, err
	}
	modules, err := read(ctx, dir)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(dir, "LICENSE"))
	if err != nil {
		return nil, err
	}
	sums := map[string][]string{}
	if err := pin(ctx, dir, version, modules); err != nil {
		return nil, err
	}
	for _, m := range modules {
		if err := m.write(dir, version, sums); err != nil {
			return nil, fmt.Errorf("%s: %w", m.path(), err)
		}
		if sums[m.path()], err = m.sums(dir, version, license); err != nil {
			return nil, fmt.Errorf("%s: %w", m.path(), err)
		}
	}
	// The commit has the same digest whenever it is made.
	at, err := run(ctx, dir, "git", "log", "-1", "--format=%cI")
	if err != nil {
		return nil, err
	}
	when := strings.TrimSpace(string(at))
	env := []string{"GIT_AUTHOR_DATE=" + when, "GIT_COMMITTER_DATE=" + when}
	if _, err := runIn(ctx, dir, env, "git", "-c", "user.name=release", "-c", "user.email=release@localhost", "-c", "commit.gpgSign=false", "commit", "--quiet", "--allow-empty", "-am", "Release "+version); err != nil {
		return nil, err
	}
	return tag(ctx, dir, version, modules)
}

// tag gives the commit that is checked out the tags of the modules, and returns them. It is an error if one of them
// is at another commit. Programs that nobody installs by a version get tags as well, which are not pushed: go build
// takes the version of a program from them.
func tag(ctx context.Context, dir, version string, modules []*released) (tags []string, err error) {
	for _, m := range modules {
		tags = append(tags, m.tag(version))
	}
	list, err := programs(dir)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(tags)
	for _, p := range list {
		names = append(names, path.Join("cmd", p.name, version))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		out, err := run(ctx, dir, "git", "tag", "--list", "--points-at", "HEAD", name)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(out)) == name {
			continue
		}
		if _, err := run(ctx, dir, "git", "tag", name); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// tagged checks that the commit that is checked out in dir is one that prepare made for a version: each module
// requires the others in it. It returns the tags, and makes those that are missing in dir.
func tagged(ctx context.Context, dir, version string) ([]string, error) {
	if out, err := run(ctx, dir, "git", "status", "--porcelain", "--untracked-files=no"); err != nil || len(out) != 0 {
		return nil, errors.Join(err, errDirty)
	}
	modules, err := read(ctx, dir)
	if err != nil {
		return nil, err
	}
	var wrong []error
	for _, m := range modules {
		for _, r := range m.file.Require {
			if slices.Contains(m.requires, r.Mod.Path) && r.Mod.Version != version {
				wrong = append(wrong, fmt.Errorf("%s requires %s %s, want %s", m.path(), r.Mod.Path, r.Mod.Version, version))
			}
		}
		for _, r := range m.file.Replace {
			wrong = append(wrong, fmt.Errorf("%s replaces %s", m.path(), r.Old.Path))
		}
	}
	if len(wrong) != 0 {
		return nil, errors.Join(wrong...)
	}
	return tag(ctx, dir, version, modules)
}

// pin lets the files of modules that are not released require the others in a version. They go on to replace
// them by directories, so they build in a checkout of the tag.
func pin(ctx context.Context, dir, version string, modules []*released) error {
	out, err := run(ctx, dir, "git", "ls-files", "--", "*.mod")
	if err != nil {
		return err
	}
	own := map[string]bool{}
	for _, m := range modules {
		own[path.Join(m.dir, "go.mod")] = true
	}
	for name := range strings.FieldsSeq(string(out)) {
		if own[name] {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		file, err := modfile.Parse(name, content, nil)
		if err != nil {
			return err
		}
		for _, r := range file.Require {
			if slices.ContainsFunc(modules, func(m *released) bool { return m.path() == r.Mod.Path }) {
				if err := file.AddRequire(r.Mod.Path, version); err != nil {
					return err
				}
			}
		}
		if content, err = file.Format(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil { //nolint:gosec // As git does.
			return err
		}
	}
	return nil
}

// read returns the modules to be released, those that others require first.
func read(ctx context.Context, dir string) ([]*released, error) {
	out, err := run(ctx, dir, "git", "ls-files", "--", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	byPath := map[string]*released{}
	var paths []string
	for _, name := range strings.Fields(string(out)) {
		at := path.Dir(name)
		if !isReleased(at) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(name, content, nil)
		if err != nil {
			return nil, err
		}
		m := &released{dir: at, file: file}
		if want := path.Join(root, at); m.path() != want {
			return nil, fmt.Errorf("%s: the module is %s, want %s", name, m.path(), want)
		}
		byPath[m.path()], paths = m, append(paths, m.path())
	}
	var sorted []*released
	state := map[string]int{} // 1 while the modules that it requires are visited, 2 afterwards.
	var visit func(name, by string) error
	visit = func(name, by string) error {
		m := byPath[name]
		switch {
		case m == nil:
			return fmt.Errorf("%s requires %s, which is not released", by, name)
		case state[name] == 1:
			return fmt.Errorf("%s and %s require each other", by, name)
		case state[name] == 2:
			return nil
		}
		state[name] = 1
		for _, r := range m.file.Require {
			if r.Mod.Path == root || strings.HasPrefix(r.Mod.Path, root+"/") {
				m.requires = append(m.requires, r.Mod.Path)
				if err := visit(r.Mod.Path, name); err != nil {
					return err
				}
			}
		}
		state[name] = 2
		sorted = append(sorted, m)
		return nil
	}
	for _, name := range paths {
		if err := visit(name, name); err != nil {
			return nil, err
		}
	}
	return sorted, nil
}

// write changes go.mod and go.sum for a version. sums has the lines about the modules that were
// written before.
func (m *released) write(dir, version string, sums map[string][]string) error {
	for _, r := range slices.Clone(m.file.Replace) {
		if r.Old.Path != root && !strings.HasPrefix(r.Old.Path, root+"/") {
			return fmt.Errorf("it replaces %s, so go install refuses it", r.Old.Path)
		}
		if err := m.file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	if len(m.requires) == 0 && len(m.file.Replace) == 0 {
		return nil
	}
	name := filepath.Join(dir, m.dir, "go.sum")
	before, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	known := strings.Split(strings.TrimSpace(string(before)), "\n")
	for _, required := range m.requires {
		if err := m.file.AddRequire(required, version); err != nil {
			return err
		}
		known = append(known, sums[required]...)
	}
	hashes := map[module.Version]string{}
	var list []module.Version
	for _, line := range known {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return fmt.Errorf("go.sum: %q is no sum", line)
		}
		of := module.Version{Path: fields[0], Version: fields[1]}
		hashes[of], list = fields[2], append(list, of)
	}
	module.Sort(list)
	var text strings.Builder
	for _, of := range slices.Compact(list) {
		fmt.Fprintf(&text, "%s %s %s\n", of.Path, of.Version, hashes[of])
	}
	m.file.Cleanup()
	content, err := m.file.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, m.dir, "go.mod"), content, 0o644); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text.String()), 0o644)
}

// sums returns the lines of go.sum about the module. As the go command does, they count the
// license of the repository for a module without one of its own.
func (m *released) sums(dir, version string, license []byte) ([]string, error) {
	name := filepath.Join(dir, m.dir, "LICENSE")
	if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(name, license, 0o644); err != nil {
			return nil, err
		}
		defer os.Remove(name)
	}
	packed, err := os.CreateTemp("", "release-*.zip")
	if err != nil {
		return nil, err
	}
	defer os.Remove(packed.Name())
	mod := module.Version{Path: m.path(), Version: version}
	if err := errors.Join(zip.CreateFromDir(packed, mod, filepath.Join(dir, m.dir)), packed.Close()); err != nil {
		return nil, err
	}
	all, err := dirhash.HashZip(packed.Name(), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	file, err := os.ReadFile(filepath.Join(dir, m.dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	of, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file)), nil })
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("%s %s %s", mod.Path, version, all), fmt.Sprintf("%s %s/go.mod %s", mod.Path, version, of)}, nil
}

// run runs a command in a directory and returns what it prints.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	return runIn(ctx, dir, nil, name, args...)
}

// runIn is run with variables beside those of this program.
func runIn(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}
