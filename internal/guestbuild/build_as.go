package guestbuild

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kubewasm/kubewasm/guest/assemblyscript"
)

// AssemblyScript is compiled by asc of the npm package assemblyscript, with the targets release
// and debug of asconfig.json. The file to compile is assembly/index.ts. The SDK is that of this
// program. The metadata are directives in comments of the files in assembly.
var AssemblyScript = &Language{
	Name: "as", Title: "AssemblyScript", is: func(name string) bool { return name == "asconfig.json" },
	compile: compileAssemblyScript, sources: []string{"assembly/*.ts"}, sdk: modulePath + "/guest/assemblyscript", uses: `"kubewasm/`,
}

func compileAssemblyScript(ctx context.Context, cfg Config, scratch string) ([]byte, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, &MissingToolError{"AssemblyScript", "node", "install Node.js 20 or later, and npm (https://nodejs.org)"}
	}
	asc, err := ascPath(cfg.Dir)
	if err != nil {
		return nil, err
	}
	modules := filepath.Join(scratch, "modules")
	sdk := filepath.Join(modules, "kubewasm")
	if err := assemblyscript.WritePackage(sdk); err != nil {
		return nil, err
	}
	if err := showEditors(cfg.Dir); err != nil {
		return nil, err
	}
	if err := checkJSON(filepath.Join(cfg.Dir, "asconfig.json")); err != nil {
		return nil, err
	}
	target := "release"
	if cfg.Debug {
		target = "debug"
	}
	// The compiler takes seconds, and tests of several packages build the same guest.
	key, err := ascKey(cfg.Dir, sdk, filepath.Dir(filepath.Dir(asc)))
	if err != nil {
		return nil, err
	}
	linked := filepath.Join(scratch, target+"-"+key+".wasm")
	said := strings.TrimSuffix(linked, ".wasm") + ".txt"
	if module, err := os.ReadFile(linked); err == nil {
		output, err := os.ReadFile(said)
		warn(cfg.Warnings, output)
		return module, err
	}
	if old, err := filepath.Glob(filepath.Join(globEscape.Replace(scratch), target+"-*")); err == nil {
		for _, file := range old {
			os.Remove(file)
		}
	}
	cmd := exec.CommandContext(ctx, node, asc, "assembly/index.ts", "--target", target, "--outFile", linked, "--noColors",
		"--runtime", "minimal", "--path", modules, "--transform", filepath.Join(sdk, "transform", "index.js"))
	cmd.Dir = cfg.Dir
	var output bytes.Buffer
	if err := run(ctx, cmd, &output); err != nil {
		return nil, err
	}
	warn(cfg.Warnings, output.Bytes())
	if err := os.WriteFile(said, output.Bytes(), 0o644); err != nil {
		return nil, err
	}
	return os.ReadFile(linked)
}

// checkJSON returns an error with the line of a file that is no JSON, of which the compiler prints
// its own stack.
func checkJSON(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, new(any)); errors.As(err, &syntax) {
		return fmt.Errorf("%s:%d: %w", filepath.Base(file), 1+bytes.Count(text[:syntax.Offset], []byte("\n")), syntax)
	}
	return nil
}

// showEditors writes the SDK beside the compiler of an npm project, where editors look for it. The
// compiler does not read it, and one that npm has installed there stays.
func showEditors(dir string) error {
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(filepath.Join(modules, "assemblyscript")); err != nil {
		return nil // The compiler is another project's.
	}
	if lock, err := os.ReadFile(filepath.Join(modules, ".package-lock.json")); err == nil && bytes.Contains(lock, []byte(`"node_modules/kubewasm"`)) {
		return nil
	}
	return assemblyscript.WritePackage(filepath.Join(modules, "kubewasm"))
}

// ascKey returns a hash of everything that a module is made from: the guest's own files, the SDK
// and the version of the compiler.
func ascKey(dir, sdk, compiler string) (string, error) {
	sum := sha256.New()
	add := func(file string) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n%s", file, len(text), text)
		return nil
	}
	if err := add(filepath.Join(compiler, "package.json")); err != nil {
		return "", err
	}
	for _, root := range []string{dir, sdk} {
		err := filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if e.IsDir() {
				if e.Name() == "node_modules" {
					return filepath.SkipDir
				}
				return nil
			}
			if ext := filepath.Ext(file); ext != ".ts" && ext != ".js" && ext != ".json" {
				return nil
			}
			return add(file)
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// ascPath returns the file of the compiler: of the npm project that a directory is a part of,
// or the one in PATH.
func ascPath(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		file := filepath.Join(at, "node_modules", "assemblyscript", "bin", "asc.js")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	if file, err := exec.LookPath("asc"); err == nil {
		return filepath.EvalSymlinks(file)
	}
	return "", &MissingToolError{"AssemblyScript", "asc", "run npm install in " + dir + ", or npm install --save-dev assemblyscript@0.28"}
}
