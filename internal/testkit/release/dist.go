package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

var (
	linux = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
	all   = append(slices.Clone(linux), platform{"darwin", "amd64"}, platform{"darwin", "arm64"}, platform{"windows", "amd64"}, platform{"windows", "arm64"})
)

// program is a program to be built.
type program struct {
	// name is the directory below cmd.
	name string
	// minor is the minor of Kubernetes of a scheduler, such as 1.37.
	minor     string
	platforms []platform
}

// full returns the name of the program in names of files.
func (p program) full() string {
	if p.minor != "" {
		return p.name + "-" + p.minor
	}
	return p.name
}

// repository returns the name of the image.
func (p program) repository() string { return strings.TrimPrefix(p.name, "kubewasm-") }

// tag returns the tag of the image of a version.
func (p program) tag(version string) string {
	if p.minor != "" {
		return version + "-" + p.minor
	}
	return version
}

// command is the program of users. It is the first one that is built: it builds and pushes guests.
const command = "kubewasm"

// programs returns the programs of a repository: the command, and those with a Dockerfile.
func programs(repo string) ([]program, error) {
	list := []program{{command, "", all}}
	files, err := filepath.Glob(filepath.Join(repo, "cmd", "*", "Dockerfile"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		if _, err := os.Stat(filepath.Join(dir, "build.sh")); err != nil {
			list = append(list, program{filepath.Base(dir), "", linux})
			continue
		}
		minors := []string{"1.37"} // That of go.mod: build.sh.
		others, err := filepath.Glob(filepath.Join(dir, "go1*.mod"))
		if err != nil {
			return nil, err
		}
		for _, other := range others {
			minors = append(minors, "1."+strings.TrimSuffix(strings.TrimPrefix(filepath.Base(other), "go1"), ".mod"))
		}
		slices.Sort(minors)
		for _, minor := range minors {
			list = append(list, program{filepath.Base(dir), minor, linux})
		}
	}
	return list, nil
}

// choose returns the command and the programs with the names, for Linux alone.
func choose(list []program, names []string) (chosen []program, err error) {
	names = append(names, command)
	for _, p := range list {
		if slices.Contains(names, p.full()) {
			p.platforms = linux
			chosen = append(chosen, p)
			names = slices.DeleteFunc(names, func(name string) bool { return name == p.full() })
		}
	}
	if len(names) != 0 {
		return nil, fmt.Errorf("there are no programs %q", names)
	}
	return chosen, nil
}

// maker makes the files of a release in a directory.
type maker struct {
	// repo is the repository that prepare made, out the directory, work one for files on the way.
	repo, out, work string
	version, commit string
	time            time.Time
	// modules are the variables by which Go takes the modules of the release from repo.
	modules []string
	// images are the lines of images.txt: repository:tag@digest.
	images []string
	// digests are the annotations of the chart with the digests of images.
	digests map[string]string
}

// number returns the version without its v, as archives and charts have it.
func (m *maker) number() string { return strings.TrimPrefix(m.version, "v") }

// write writes a file of the release.
func (m *maker) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(m.out, name), data, 0o644) //nolint:gosec // Everybody may read it.
}

// makeDist writes the files of a release into the directory dist of the repository that prepare made. Their bytes
// depend on the commit, the version and the release of Go alone.
func makeDist(ctx context.Context, repo, version string, list []program, guests []string) (m *maker, err error) {
	head, err := run(ctx, repo, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	commit, seconds, _ := strings.Cut(strings.TrimSpace(string(head)), " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, err
	}
	m = &maker{repo: repo, out: filepath.Join(repo, "dist"), version: version, commit: commit, time: time.Unix(unix, 0).UTC(), digests: map[string]string{}}
	// An untracked directory would make the version dirty.
	if err := errors.Join(
		os.MkdirAll(m.out, 0o755), //nolint:gosec // Everybody may read it.
		os.WriteFile(filepath.Join(repo, ".git/info/exclude"), []byte("/dist/\n"), 0o600),
	); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	m.work = work // The results may be nil and an error.
	defer func() { err = errors.Join(err, writable(work), os.RemoveAll(work)) }()
	if err := m.environment(ctx); err != nil {
		return nil, err
	}
	if list[0].name != command {
		return nil, fmt.Errorf("the first program is %s, want %s", list[0].name, command)
	}
	host, err := m.host(ctx)
	if err != nil {
		return nil, err
	}
	tool, err := m.build(ctx, list[0], host)
	if err != nil {
		return nil, err
	}
	modules, err := m.guests(ctx, tool, guests)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		binaries := map[platform]string{}
		for _, on := range p.platforms {
			file, err := m.build(ctx, p, on)
			if err != nil {
				return nil, err
			}
			binaries[on] = file
			if err := errors.Join(m.archive(p, on, file), m.bom(p, on, file)); err != nil {
				return nil, err
			}
		}
		if p.name == command {
			continue
		}
		if err := m.image(p, binaries, modules); err != nil {
			return nil, fmt.Errorf("image of %s: %w", p.full(), err)
		}
	}
	if err := m.chart(); err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	slices.Sort(m.images)
	if err := errors.Join(
		m.write("images.txt", []byte(strings.Join(m.images, "\n")+"\n")), m.packages(ctx), m.manifests(list[0]),
	); err != nil {
		return nil, err
	}
	return m, m.checksums()
}

// environment sets the variables by which Go takes the modules of the release from the repository. They lie
// in a cache of their own, since another commit may have had the version.
func (m *maker) environment(ctx context.Context) error {
	out, err := run(ctx, m.repo, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return err
	}
	cache, proxy, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	m.modules = []string{
		"GOMODCACHE=" + filepath.Join(m.work, "modules"), "GOPROXY=file://" + filepath.ToSlash(cache) + "/cache/download," + proxy,
		"GOPRIVATE=" + root, "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://" + m.repo + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + root,
	}
	return nil
}

// host returns the platform of this machine.
func (m *maker) host(ctx context.Context) (platform, error) {
	out, err := run(ctx, m.repo, "go", "env", "GOHOSTOS", "GOHOSTARCH")
	if err != nil {
		return platform{}, err
	}
	of := strings.Fields(string(out))
	return platform{of[0], of[1]}, nil
}

// build builds a program for a platform and returns the file. A program that cannot be installed by its version is
// built with the modules in the directories of the repository, the others with those of the version.
func (m *maker) build(ctx context.Context, p program, on platform) (string, error) {
	name := p.name
	if on.os == "windows" {
		name += ".exe"
	}
	file := filepath.Join(m.work, "bin", fmt.Sprintf("%s_%s_%s", p.full(), on.os, on.arch), name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	env := []string{"GOOS=" + on.os, "GOARCH=" + on.arch, "CGO_ENABLED=0", "GOFLAGS=-buildvcs=true -trimpath", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0"}
	dir, args := filepath.Join(m.repo, "cmd", p.name), []string{"go", "build", "-ldflags=-s -w", "-o", file, "."}
	if p.name == "kubewasm-webhook" {
		args = slices.Insert(args, 2, "-tags=grpcnotrace") // As in its Dockerfile.
	}
	if p.minor != "" {
		args = []string{"./build.sh", p.minor, file}
	}
	if isReleased("cmd/" + p.name) {
		env = append(env, m.modules...)
	}
	if _, err := runIn(ctx, dir, env, args[0], args[1:]...); err != nil {
		return "", fmt.Errorf("build %s for %s/%s: %w", p.full(), on.os, on.arch, err)
	}
	return file, nil
}

// checksums writes SHA256SUMS, over all files beside it. images.txt has the digests of the images.
func (m *maker) checksums() error {
	entries, err := os.ReadDir(m.out)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(m.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return m.write(sums, []byte(text.String()))
}

// sums is the file with the digests of the others.
const sums = "SHA256SUMS"

// writable lets directories of the module cache be removed.
func writable(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(name, 0o700) //nolint:gosec // A directory needs the bit to be searched.
		}
		return err
	})
}
