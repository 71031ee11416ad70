package guestbuild

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/abi/metadata"
)

// Language is a language that guests are written in.
type Language struct {
	// Name is the name in flags and Title the one in texts.
	Name, Title string
	// is reports whether a file of this name makes a directory one of the language.
	is func(name string) bool
	// compile compiles the guest in cfg.Dir, which is absolute, and returns the module. scratch
	// is a directory of the guest's own in the cache of the user.
	compile func(ctx context.Context, cfg Config, scratch string) ([]byte, error)
	// sources are patterns of the files whose comments have directives. There are none if the
	// module has the section of the metadata itself.
	sources []string
	// sdk is the package that a guest is written with if its sources have the text uses.
	sdk, uses string
	// registers is the text of ErrNothingRegistered, empty for its own.
	registers string
}

// Languages are the languages that [Compile] knows, in the order in which it looks for
// them: a directory with a Cargo.toml may have files in C as well.
var Languages = []*Language{Rust, AssemblyScript, Go, C}

// Go is compiled by the machine's own toolchain. A directory of which no other language is
// known is taken for Go, whose errors are about what is missing.
var Go = &Language{Name: "go", Title: "Go", is: func(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}}

// LanguageOf returns the language of the guest in a directory.
func LanguageOf(dir string) *Language {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Go // Its compiler reports the error.
	}
	for _, l := range Languages {
		if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() && l.is(e.Name()) }) {
			return l
		}
	}
	return Go
}

var globEscape = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)

// MissingToolError is the error for a guest whose toolchain is not on the machine.
type MissingToolError struct {
	// Language is the title of the guest's language, Tool what is missing.
	Language, Tool string
	// Get says how to get it.
	Get string
}

func (e *MissingToolError) Error() string {
	return fmt.Sprintf("no %s, which guests in %s are compiled with: %s", e.Tool, e.Language, e.Get)
}

// compileForeign compiles a guest in another language than Go.
func (l *Language) compileForeign(ctx context.Context, cfg Config, dir string) (*metadata.Metadata, error) {
	lockFile, err := cached(dir, "."+l.Name+".lock")
	if err != nil {
		return nil, err
	}
	unlock, err := lock(lockFile)
	if err != nil {
		return nil, err
	}
	defer unlock()
	absolute := cfg
	absolute.Dir = dir
	module, err := l.compile(ctx, absolute, filepath.Dir(lockFile))
	if err != nil {
		return nil, err
	}
	s := &source{name: filepath.Base(dir)}
	if l.sources != nil {
		if s, err = l.readComments(dir); err != nil {
			return nil, err
		}
	}
	m, err := s.metadata(module)
	if errors.Is(err, ErrNothingRegistered) && l.registers != "" {
		err = &nothingRegistered{l.registers}
	}
	if err != nil {
		return nil, err
	}
	own, err := metadata.Find(module)
	if err != nil {
		return nil, err
	}
	if own != nil {
		own.Kinds, own.Name = m.Kinds, cmp.Or(own.Name, m.Name)
		if err := checkOwn(own); err != nil {
			return nil, err
		}
		m = own
	}
	m.Name, m.Version = cmp.Or(cfg.Name, m.Name), cmp.Or(cfg.Version, m.Version)
	if module, err = metadata.Add(module, m); err != nil {
		return nil, err
	}
	return m, write(cfg.Output, module)
}

// run runs a compiler. Its output is that of a *[CompileError] if it fails, and goes to warnings if it
// does not. A standard output that is set already is not part of it.
func run(ctx context.Context, cmd *exec.Cmd, warnings io.Writer) error {
	var output bytes.Buffer
	if cmd.Stderr = &output; cmd.Stdout == nil {
		cmd.Stdout = &output
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &CompileError{Dir: cmd.Dir, Output: cmp.Or(strings.TrimSpace(output.String()), err.Error())}
	}
	warn(warnings, output.Bytes())
	return nil
}

// warn passes on what a toolchain has printed.
func warn(to io.Writer, output []byte) {
	if output = bytes.TrimSpace(output); to != nil && len(output) != 0 {
		_, _ = to.Write(append(output, '\n')) // A warning that cannot be printed fails no build.
	}
}

// readComments returns what the directives in comments of the sources declare, each on a line
// of its own as in [Directives].
func (l *Language) readComments(dir string) (*source, error) {
	s := &source{name: filepath.Base(dir)}
	seen := map[string]bool{}
	var errs []error
	for _, pattern := range l.sources {
		files, err := filepath.Glob(filepath.Join(globEscape.Replace(dir), pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if bytes.Contains(text, []byte(l.uses)) {
				s.sdk = sdk(l.sdk)
			}
			var at token.Position
			if at.Filename, err = filepath.Rel(dir, file); err != nil {
				return nil, err
			}
			for line := range strings.Lines(string(text)) {
				at.Line++
				if err := s.addComment(at, strings.TrimSpace(line), seen); err != nil {
					errs = append(errs, &SourceError{at, err})
				}
			}
		}
	}
	return s, errors.Join(errs...)
}
