// Package guestbuild compiles guests with the toolchains of the machine, for the command
// kubewasm, the test harness of authors, the quick start, tests and benchmarks.
package guestbuild

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/internal/diskcache"
)

// ErrNoGo is returned if there is no Go toolchain.
var ErrNoGo = errors.New("no Go toolchain: the command go is not in PATH")

// TrackSources makes a test depend on every file of the outermost module around dir. The go command
// reuses the result of a test while the files that the test has looked at are unchanged. It
// does not see the files that a go command within the test reads. TrackSources looks at all
// of them.
func TrackSources(dir string) error {
	root, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, before := tracked.Load(root); before {
		return nil
	}
	if _, err = trackSources(root); err == nil {
		tracked.Store(root, true)
	}
	return err
}

// tracked has the directories of TrackSources, which needs to look once in a process.
var tracked sync.Map

// trackSources does what TrackSources does for a directory whose name is absolute. It returns a
// sum of the files' names, sizes and times of modification and change, nil if dir is in no module.
func trackSources(dir string) (sum []byte, err error) {
	root := "" // Nested modules replace the modules around them by directories.
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			root = dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if root == "" {
		return nil, nil
	}
	h := sha256.New()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // Another test has removed its own file.
		}
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if !d.IsDir() {
			fmt.Fprintln(h, path, info.Size(), info.ModTime().UnixNano(), changed(path))
		}
		return nil
	})
	return h.Sum(nil), err
}

// Build compiles the guest in dir, in any of [Languages], and returns the file. The
// file lies in the user's cache directory under the name of dir, so that an
// unchanged guest is not linked again. A process that has built it before asks no toolchain
// while nothing in the outermost module around dir has changed.
func Build(ctx context.Context, dir string) (string, error) { return BuildWith(ctx, dir, false, nil) }

// BuildWith is [Build] with the warnings of the toolchain. If it is named, the module has the
// names of functions and the lines of the source, as with Config.Debug.
func BuildWith(ctx context.Context, dir string, named bool, warnings io.Writer) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	sources, err := trackSources(dir)
	if err != nil {
		return "", err
	}
	key := dir
	if named {
		key = filepath.Join(dir, "named", filepath.Base(dir)) // The file has the name of dir.
	}
	file, err := cached(key, ".wasm")
	if err != nil {
		return "", err
	}
	if before, ok := built.Load(key); ok && sources != nil && bytes.Equal(before.([]byte), sources) {
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	if _, err := Compile(ctx, Config{Dir: dir, Output: file, Debug: named, Warnings: warnings}); err != nil {
		return "", err
	}
	built.Store(key, sources)
	return file, nil
}

// built has the sums of the sources of the guests that Build has built, by their directories.
var built sync.Map

// cached returns the name of a file in the user's cache directory that belongs
// to dir, which is absolute.
func cached(dir, suffix string) (string, error) {
	guests, err := guestsDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(dir))
	file := filepath.Join(guests, hex.EncodeToString(sum[:6]), filepath.Base(dir)+suffix)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	diskcache.UseDir(filepath.Dir(file))
	// A guest in a directory of a test is not built again.
	trimOnce.Do(func() { _ = diskcache.TrimDirs(guests, maxCacheBytes, maxCacheAge) })
	return file, nil
}

var trimOnce sync.Once

// temporary is the directory that takes the place of the user's cache directory if that cannot
// be written to, and why it cannot.
var temporary struct {
	sync.Mutex
	dir string
	why error
}

// guestsDir returns the directory of all guests. Without a home, or with one that cannot be
// written to, it is a temporary one.
func guestsDir() (string, error) {
	temporary.Lock()
	defer temporary.Unlock()
	cache, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(cache, "kubewasm", "guests")
		if err = writable(dir); err == nil {
			return dir, nil
		}
	}
	if temporary.dir == "" {
		dir, made := os.MkdirTemp("", "kubewasm-")
		if made != nil {
			return "", errors.Join(err, made)
		}
		temporary.dir, temporary.why = dir, err
	}
	return temporary.dir, nil
}

// writable makes a directory and returns why no file can be made in it.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// RemoveTemporary removes what was built without a cache. It returns why there was none, nil if
// there was one.
func RemoveTemporary() error {
	temporary.Lock()
	defer temporary.Unlock()
	if temporary.dir == "" {
		return nil
	}
	why := temporary.why
	if err := os.RemoveAll(temporary.dir); err != nil {
		why = errors.Join(why, err)
	}
	temporary.dir, temporary.why = "", nil
	built.Clear()
	return fmt.Errorf("keep guests in a cache: %w", why)
}

// The bounds of the cache of guests, in which one has some 8 MB.
const (
	maxCacheBytes = 1 << 30
	maxCacheAge   = 14 * 24 * time.Hour
)

// Config is a guest to build.
type Config struct {
	// Dir is the directory of the guest: a package main, or the sources of another of
	// [Languages].
	Dir string
	// Output is the file to write.
	Output string
	// Name and Version replace those of the source.
	Name, Version string
	// Debug is set to keep what the stacks of traps are made from: the names of functions
	// and, where the language has them, the lines of the source. A guest in Go prints a stack
	// with both when it panics, and needs Debug for the names in other traps alone.
	Debug bool
	// Warnings receives what the toolchain prints of a guest that it has built; nil drops it.
	Warnings io.Writer
}

// CompileError is the error of a toolchain for a guest that it cannot build.
type CompileError struct {
	Dir string
	// Output is the toolchain's own, lines of "file:line:column: message".
	Output string
}

func (e *CompileError) Error() string { return "build guest " + e.Dir + ": " + e.Output }

// Compile compiles a guest and adds the metadata of its source, see [Directives].
//
// Errors, for errors.As: *[CompileError]; *[SourceError] for each wrong directive, joined;
// *[MissingToolError]. For errors.Is: [ErrNoGo].
func Compile(ctx context.Context, cfg Config) (*metadata.Metadata, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if l := LanguageOf(dir); l != Go {
		m, err := l.compileForeign(ctx, cfg, dir)
		if compile := (*CompileError)(nil); errors.As(err, &compile) {
			compile.Dir = cfg.Dir
			return nil, compile
		} else if err != nil {
			return nil, fmt.Errorf("build guest %s: %w", cfg.Dir, err)
		}
		return m, nil
	}
	source, err := readSource(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("build guest %s: %w", cfg.Dir, err)
	}
	linked, err := cached(dir, ".linked")
	if err != nil {
		return nil, err
	}
	// Tests of several packages build the same guest at the same time. None may read a
	// file that another one is writing.
	unlock, err := lock(linked + ".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	// The go command does not link again if its last output is unchanged, so metadata are
	// added to a copy.
	symbols := "-ldflags=-s -w"
	if cfg.Debug {
		symbols = "-ldflags=-w"
	}
	cmd, err := goCommand(ctx, dir, "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", symbols, "-o", linked, ".")
	if err != nil {
		return nil, err
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("build guest %s: %w", cfg.Dir, ctx.Err())
		}
		return nil, &CompileError{Dir: cfg.Dir, Output: strings.TrimSpace(source.hintsGo(output.String()))}
	}
	warn(cfg.Warnings, output.Bytes())
	module, err := os.ReadFile(linked)
	if err != nil {
		return nil, err
	}
	m, err := source.metadata(module)
	if err != nil {
		return nil, fmt.Errorf("build guest %s: %w", cfg.Dir, err)
	}
	m.Name, m.Version = cmp.Or(cfg.Name, m.Name), cmp.Or(cfg.Version, m.Version)
	if module, err = metadata.Add(module, m); err != nil {
		return nil, fmt.Errorf("build guest %s: %w", cfg.Dir, err)
	}
	if slices.Contains(m.Kinds, abi.KindService.String()) {
		if module, err = addSchema(ctx, dir, module); err != nil {
			return nil, fmt.Errorf("build guest %s: %w", cfg.Dir, err)
		}
	}
	return m, write(cfg.Output, module)
}

// sumRE matches the lines by which the go command asks for a sum of a module.
var sumRE = regexp.MustCompile(`(?m)^.*: missing go\.sum entry for module providing package .*\n\tgo get .*\n?`)

// hintsGo returns the output of the go command with hints. The packages of a component need modules
// that a guest does not have: their sums are not what is missing.
func (s *source) hintsGo(output string) string {
	if len(s.hosts) == 0 {
		return output
	}
	return sumRE.ReplaceAllString(output, "") + "\nhint: " + strings.Join(s.hosts, "\nhint: ")
}

// goCommand returns a command of the Go toolchain for guests, to run in dir.
func goCommand(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return nil, ErrNoGo
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	return cmd, nil
}

// write replaces a file, unless it has these contents already.
func write(file string, contents []byte) error {
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, contents) {
		return nil
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, contents, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}
