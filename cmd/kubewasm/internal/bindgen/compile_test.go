package bindgen_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/cmd/kubewasm/internal/bindgen"
	"github.com/kubewasm/kubewasm/guest/assemblyscript"
	"github.com/kubewasm/kubewasm/guest/c"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestGeneratedCodeCompiles compiles what is written for the files of testdata/names.txt, and for
// hostile names in each place of a source, in all languages.
func TestGeneratedCodeCompiles(t *testing.T) {
	languages.Slow(t)
	var packages []*bindgen.Package
	for _, c := range protoCases(t) {
		if c.refused != "" {
			continue
		}
		p, err := packageOf(t, c)
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	packages = append(packages, hostilePackages(t)...)
	for language, build := range compile(t, packages) {
		t.Run(language, build)
	}
}

// hostilePackages returns a package for each place, with all hostile texts that it takes.
func hostilePackages(t *testing.T) (all []*bindgen.Package) {
	t.Helper()
	properties, objects, described, values := map[string]any{}, map[string]any{}, map[string]any{}, []string{}
	var fields strings.Builder
	number := 0
	for i, text := range hostileNames {
		if _, err := crdWith(map[string]any{text: nil}, "Widget", "w.yaml"); err != nil {
			continue
		}
		properties[text] = map[string]any{"type": "string", "description": text}
		objects[text] = map[string]any{"type": "object", "properties": map[string]any{text: map[string]any{"type": "array", "items": map[string]any{"type": "string"}}, fmt.Sprint(i): map[string]any{"type": "integer"}}}
		described[fmt.Sprint("p", i)] = map[string]any{"type": "boolean", "description": "Words " + text}
		values = append(values, text)
		number++
		field := fmt.Sprintf("/* %s */ optional string f%d = %d [json_name = %s];\n", strings.ReplaceAll(text, "*/", ""), number, number, protoString(text))
		if _, err := protoWith(t, field); err == nil {
			fields.WriteString(field)
		}
	}
	for name, p := range map[string]map[string]any{"properties": properties, "objects": objects, "described": described, "valued": {"v": map[string]any{"type": "string", "enum": values}}} {
		pkg, err := crdWith(p, "Widget", "w"+hostileNames[0]+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		pkg.Name = "hostile_" + name
		all = append(all, pkg)
	}
	p, err := protoWith(t, fields.String())
	if err != nil {
		t.Fatal(err)
	}
	p.Name = "hostile_fields"
	return append(all, p)
}

// pending are the packages of the fuzz target that are not compiled yet, and their texts.
var pending struct {
	packages []*bindgen.Package
	texts    []string
}

// compileHostile compiles what is written for hostile texts, if all languages are tested: forty
// at once, since compilers take a second each.
func compileHostile(t *testing.T, place, text string) {
	t.Helper()
	if os.Getenv("KUBEWASM_LANGUAGES") == "" {
		return
	}
	p, err := places[place](t, text)
	if err != nil {
		return
	}
	if _, err := written(p); err != nil {
		return
	}
	p.Name = fmt.Sprint("n", len(pending.packages))
	pending.packages, pending.texts = append(pending.packages, p), append(pending.texts, fmt.Sprintf("%s: %s %q", p.Name, place, text))
	if len(pending.packages) < 40 {
		return
	}
	all := pending
	pending.packages, pending.texts = nil, nil
	for _, build := range compile(t, all.packages) {
		build(t) // A fuzz target has no subtests.
	}
	if t.Failed() {
		t.Log(strings.Join(all.texts, "\n"))
	}
}

// compile writes packages of different names in each language, and returns what compiles them.
func compile(t *testing.T, packages []*bindgen.Package) (builds map[string]func(*testing.T)) {
	t.Helper()
	builds = map[string]func(*testing.T){}
	for language, build := range map[string]func(*testing.T, string, []*bindgen.Package){"go": compileGo, "c": compileC, "rust": compileRust, "as": compileAS} {
		l, err := bindgen.LanguageNamed(language)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for _, p := range packages {
			files, err := l.Write(p)
			if err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
			writeInto(t, filepath.Join(dir, p.Name), files)
		}
		builds[language] = func(t *testing.T) { build(t, dir, packages) }
	}
	return builds
}

func writeInto(t *testing.T, dir string, files []bindgen.File) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a compiler.
func run(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%.20000s", filepath.Base(name), err, out)
	}
}

// compileGo compiles guests and hosts as packages of this module, which lie in an overlay.
func compileGo(t *testing.T, dir string, packages []*bindgen.Package) {
	hosts := t.TempDir()
	for _, p := range packages {
		if len(p.Services) == 0 {
			continue
		}
		files, err := bindgen.WriteHost(p)
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		writeInto(t, filepath.Join(hosts, p.Name), files)
	}
	for _, side := range []struct {
		name, dir string
		env       []string
	}{{"guests", dir, []string{"GOOS=wasip1", "GOARCH=wasm"}}, {"guests", dir, nil}, {"hosts", hosts, nil}} {
		overlay := struct{ Replace map[string]string }{map[string]string{}}
		root, err := filepath.Abs("compiled")
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(side.dir, "*", "*.go"))
		if err != nil || len(files) == 0 && side.name == "guests" {
			t.Fatalf("%v, %d files", err, len(files))
		}
		args := []string{"build", "-overlay", filepath.Join(side.dir, "overlay.json"), "--"}
		seen := map[string]bool{}
		for _, file := range files {
			rel, err := filepath.Rel(side.dir, file)
			if err != nil {
				t.Fatal(err)
			}
			overlay.Replace[filepath.Join(root, side.name, rel)] = file
			if pkg := filepath.Dir(rel); !seen[pkg] {
				args, seen[pkg] = append(args, "./compiled/"+side.name+"/"+pkg), true
			}
		}
		if len(files) == 0 {
			continue
		}
		text, err := json.Marshal(overlay)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(side.dir, "overlay.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, ".", side.env, "go", args...)
	}
}

// compileC compiles a file with all headers, in the dialect of guests and in that of the
// standard, which has trigraphs.
func compileC(t *testing.T, dir string, packages []*bindgen.Package) {
	clang, err := exec.LookPath("clang")
	if err != nil {
		languages.Check(t, &guestbuild.MissingToolError{Language: "C", Tool: "clang", Get: "install clang"})
	}
	include := filepath.Join(t.TempDir(), "include")
	if err := c.WriteHeaders(include); err != nil {
		t.Fatal(err)
	}
	var main strings.Builder
	for _, p := range packages {
		fmt.Fprintf(&main, "#include \"%s/%s.h\"\n", p.Name, p.Name)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.c"), []byte(main.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, std := range []string{"-std=gnu11", "-std=c11"} {
		args := append(guestbuild.CFlags(false), std, "-Werror", "-I", include, "-fsyntax-only", "-Wno-unused-parameter", "-Wno-trigraphs", "main.c")
		run(t, dir, nil, clang, args...)
	}
}

// compileRust checks a crate with a module for each package.
func compileRust(t *testing.T, dir string, packages []*bindgen.Package) {
	cargo, err := exec.LookPath("cargo")
	if err != nil {
		languages.Check(t, &guestbuild.MissingToolError{Language: "Rust", Tool: "cargo", Get: "install cargo"})
	}
	sdk, err := filepath.Abs("../../../../guest/rust")
	if err != nil {
		t.Fatal(err)
	}
	lib := "#![allow(warnings)]\n"
	for _, p := range packages {
		lib += "mod r#" + p.Name + ";\n"
	}
	for name, text := range map[string]string{
		"lib.rs":     lib,
		"Cargo.toml": fmt.Sprintf("[package]\nname = \"generated\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\npath = \"lib.rs\"\n[dependencies]\nkubewasm = { path = %q }\n[workspace]\n", sdk),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, nil, cargo, "check", "--quiet", "--offline", "--target-dir", filepath.Join(cache, "kubewasm", "generated"))
}

var (
	asClassRE    = regexp.MustCompile(`(?m)^export (abstract )?class (\w+)`)
	asAccessorRE = regexp.MustCompile(`(?m)^  get (\w+)\(\)`)
	asServeRE    = regexp.MustCompile(`(?m)^export function (serve_\w+)\(p: (\w+)\)`)
	asStaticRE   = regexp.MustCompile(`(?m)^  static (\w+)\(req: (\w+)\)`)
)

const asTransform = `export default class {
  afterParse(parser) {
    for (const source of parser.sources) for (const s of source.statements) for (const d of s.declarations ?? []) if (source.internalPath === "~lib/rt/tcms" && d.name.text === "total") d.flags |= 2;
  }
}
`

// compileAS compiles functions that use each accessor: the compiler looks at nothing else.
func compileAS(t *testing.T, dir string, packages []*bindgen.Package) {
	node, err := exec.LookPath("node")
	asc, pathErr := filepath.Abs("../../../../guest/assemblyscript/node_modules/assemblyscript/bin/asc.js")
	if err != nil || pathErr != nil {
		languages.Check(t, &guestbuild.MissingToolError{Language: "AssemblyScript", Tool: "node", Get: "install Node.js"})
	}
	if _, err := os.Stat(asc); err != nil {
		languages.Check(t, &guestbuild.MissingToolError{Language: "AssemblyScript", Tool: "asc", Get: "run npm ci in guest/assemblyscript"})
	}
	modules := t.TempDir()
	if err := assemblyscript.WritePackage(filepath.Join(modules, "kubewasm")); err != nil {
		t.Fatal(err)
	}
	// The SDK needs this of its own transform, which leaves nothing exported but a plugin.
	transform := filepath.Join(modules, "transform.mjs")
	if err := os.WriteFile(transform, []byte(asTransform), 0o644); err != nil {
		t.Fatal(err)
	}
	n := 0
	args := []string{asc, "--transform", transform, "--noEmit", "--noColors", "--runtime", "minimal", "--path", modules, "--disableWarning"}
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join(dir, p.Name, "*.ts"))
		if err != nil {
			t.Fatal(err)
		}
		var uses strings.Builder
		fmt.Fprintf(&uses, "import * as all from \"./index\";\n")
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, serve := range asServeRE.FindAllStringSubmatch(string(text), -1) {
				n++
				fmt.Fprintf(&uses, "export function use%d(p: all.%s): i32 { return all.%s(p); }\n", n, serve[2], serve[1])
			}
			at := asClassRE.FindAllSubmatchIndex(text, -1)
			for i, m := range at {
				end := len(text)
				if i+1 < len(at) {
					end = at[i+1][0]
				}
				class, body := string(text[m[4]:m[5]]), string(text[m[0]:end])
				n++
				if m[2] < 0 && !asStaticRE.MatchString(body) {
					fmt.Fprintf(&uses, "export function use%d(m: all.%s): void {\n", n, class)
					for _, accessor := range asAccessorRE.FindAllStringSubmatch(body, -1) {
						fmt.Fprintf(&uses, "  m.%s;\n", accessor[1])
					}
					if strings.Contains(body, "  write_(w: Writer)") {
						fmt.Fprintf(&uses, "  m.write_(changetype<Writer>(0));\n")
					}
					uses.WriteString("}\n")
				}
				for _, static := range asStaticRE.FindAllStringSubmatch(body, -1) {
					n++
					fmt.Fprintf(&uses, "export function use%d(q: all.%s): void { all.%s.%s(q); }\n", n, static[2], class, static[1])
				}
			}
		}
		name := filepath.Join(p.Name, "use.ts")
		text := "import { Writer } from \"kubewasm/internal/writer\";\n" + uses.String()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	run(t, dir, nil, node, args...)
}
