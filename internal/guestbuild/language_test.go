package guestbuild

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi/metadata"
)

func writeFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLanguageOf(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  *Language
	}{
		"a package of Go":                      {map[string]string{"main.go": ""}, Go},
		"a package of Go with a file in C":     {map[string]string{"main.go": "", "x.c": ""}, Go},
		"a file in C":                          {map[string]string{"main.c": ""}, C},
		"a file in C with a test in Go":        {map[string]string{"main.c": "", "main_test.go": ""}, C},
		"a crate":                              {map[string]string{"Cargo.toml": "", "shim.c": ""}, Rust},
		"a project of AssemblyScript":          {map[string]string{"asconfig.json": "", "package.json": ""}, AssemblyScript},
		"nothing that is a guest":              {map[string]string{"README.md": ""}, Go},
		"a directory that is named like those": {map[string]string{"main.c/README.md": ""}, Go},
	} {
		t.Run(name, func(t *testing.T) {
			if got := LanguageOf(writeFiles(t, test.files)); got != test.want {
				t.Errorf("got %s, want %s", got.Title, test.want.Title)
			}
		})
	}
}

// compile compiles a guest, and skips the test where the toolchain is missing.
func compile(t *testing.T, cfg Config) (*metadata.Metadata, error) {
	t.Helper()
	if cfg.Output == "" {
		cfg.Output = filepath.Join(t.TempDir(), "guest.wasm")
	}
	m, err := Compile(t.Context(), cfg)
	if missing := (*MissingToolError)(nil); errors.As(err, &missing) {
		t.Skip(missing)
	}
	return m, err
}

func TestCompileOtherLanguages(t *testing.T) {
	const rust = "#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n#[no_mangle]\npub extern \"C\" fn filter(_: i64, _: i64, _: i64) -> i32 { 0 }\n"
	const manifest = "[package]\nname = \"my-zone\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n"
	const cSource = "__attribute__((export_name(\"filter\"))) int filter(long long c, long long p, long long n) { (void)c; (void)p; (void)n; return 0; }\n"
	const section = `__asm__(".section .custom_section.kubewasm,\"\",@\n.ascii \"{\\\"abi\\\": 1, \\\"name\\\": \\\"mine\\\", \\\"sdk\\\": \\\"own\\\", \\\"reads\\\": [\\\"node.metadata.labels\\\"]}\"\n.text");`
	for name, test := range map[string]struct {
		files map[string]string
		want  *metadata.Metadata
	}{
		"C":                         {map[string]string{"zone/main.c": cSource}, &metadata.Metadata{ABI: 1, Name: "zone", Kinds: []string{"scheduler"}}},
		"C that declares something": {map[string]string{"zone/main.c": cSource + section}, &metadata.Metadata{ABI: 1, Name: "mine", SDK: "own", Kinds: []string{"scheduler"}, Reads: []string{"node.metadata.labels"}}},
		"Rust":                      {map[string]string{"zone/Cargo.toml": manifest, "zone/src/lib.rs": rust}, &metadata.Metadata{ABI: 1, Name: "zone", Kinds: []string{"scheduler"}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := compile(t, Config{Dir: filepath.Join(writeFiles(t, test.files), "zone")})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, m); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMistakesInOtherLanguages(t *testing.T) {
	dir := writeFiles(t, map[string]string{"main.c": "int f(void) { return x; }\n"})
	_, err := compile(t, Config{Dir: dir})
	var failed *CompileError
	if !errors.As(err, &failed) || failed.Dir != dir || !strings.HasPrefix(failed.Output, "main.c:1:22: error") {
		t.Errorf("got %v", err)
	}
	dir = writeFiles(t, map[string]string{"main.c": "__attribute__((export_name(\"validate\"))) long long f(void) { return 0; }\n" +
		`__asm__(".section .custom_section.kubewasm,\"\",@\n.ascii \"{\\\"abi\\\": 1, \\\"reads\\\": [\\\"node.metadata.labels\\\"]}\"\n.text");`})
	const want = ": metadata: //kubewasm:reads is for scheduler plugins and for hooks; this one is for admission"
	if _, err := compile(t, Config{Dir: dir}); err == nil || err.Error() != "build guest "+dir+want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestMissingTools(t *testing.T) {
	system := systemRust
	t.Cleanup(func() { systemRust = system })
	systemRust = [2]string{"/none/cargo", "/none/rustc"}
	const llvm = "install clang and lld (Debian and Ubuntu: apt install clang lld; macOS: brew install llvm lld)"
	for _, test := range []struct {
		name string
		file string
		// tools are those that are there: they print nothing.
		tools []string
		want  string
	}{
		{"C without a compiler", "main.c", nil, "no clang, which guests in C are compiled with: " + llvm},
		{"C without a linker", "main.c", []string{"clang"}, "no wasm-ld, which guests in C are compiled with: " + llvm},
		{"Rust without cargo", "Cargo.toml", nil, "no cargo, which guests in Rust are compiled with: install Rust from https://rustup.rs (Debian: apt install cargo libstd-rust-dev-wasm32)"},
		{"Rust without the target", "Cargo.toml", []string{"cargo", "rustc"}, "no rustc with the target wasm32-unknown-unknown, which guests in Rust are compiled with: rustup target add wasm32-unknown-unknown (Debian: apt install libstd-rust-dev-wasm32)"},
		{"AssemblyScript without node", "asconfig.json", nil, "no node, which guests in AssemblyScript are compiled with: install Node.js 20 or later, and npm (https://nodejs.org)"},
		{"AssemblyScript without its compiler", "asconfig.json", []string{"node"}, "no asc, which guests in AssemblyScript are compiled with: run npm install in DIR, or npm install --save-dev assemblyscript@0.28"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tools := t.TempDir()
			for _, tool := range test.tools {
				if err := os.WriteFile(filepath.Join(tools, tool), []byte("#!/bin/sh\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", tools)
			dir := writeFiles(t, map[string]string{test.file: ""})
			_, err := Compile(t.Context(), Config{Dir: dir, Output: filepath.Join(dir, "guest.wasm")})
			if want := "build guest " + dir + ": " + strings.ReplaceAll(test.want, "DIR", dir); err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

func TestEditorsFindThePackage(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"a project with its compiler":     {map[string]string{"node_modules/assemblyscript/package.json": "{}", "node_modules/.package-lock.json": `{"packages": {"node_modules/assemblyscript": {}}}`}, true},
		"a project of another's compiler": {map[string]string{"asconfig.json": "{}"}, false},
		"a project with the package": {map[string]string{
			"node_modules/assemblyscript/package.json": "{}", "node_modules/.package-lock.json": `{"packages": {"node_modules/kubewasm": {}}}`,
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFiles(t, test.files)
			if err := showEditors(dir); err != nil {
				t.Fatal(err)
			}
			_, err := os.Stat(filepath.Join(dir, "node_modules", "kubewasm", "editor.d.ts"))
			if got := err == nil; got != test.want {
				t.Errorf("written: %v, want %v", got, test.want)
			}
		})
	}
}

// TestBuildsOfOtherProjects holds that a build gives the module of its own sources after those of
// another project of the same name were built, and after they were replaced by files that seem older.
func TestBuildsOfOtherProjects(t *testing.T) {
	const manifest = "[package]\nname = \"plugin\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n"
	rust := func(code string) map[string]string {
		return map[string]string{"Cargo.toml": manifest, "src/lib.rs": "#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n#[no_mangle]\npub extern \"C\" fn filter(_: i64, _: i64, _: i64) -> i32 { " + code + " }\n"}
	}
	inC := func(code string) map[string]string {
		return map[string]string{"main.c": "__attribute__((export_name(\"filter\"))) int filter(long long c, long long p, long long n) { (void)c; (void)p; (void)n; return " + code + "; }\n"}
	}
	for name, files := range map[string]func(code string) map[string]string{"Rust": rust, "C": inC} {
		t.Run(name, func(t *testing.T) {
			// The code of a filter that returns 4660 is in no other module.
			deny, allow := writeFiles(t, files("4660")), writeFiles(t, files("0"))
			denies := func(dir string) bool {
				t.Helper()
				out := filepath.Join(t.TempDir(), "guest.wasm")
				if _, err := compile(t, Config{Dir: dir, Output: out}); err != nil {
					t.Fatal(err)
				}
				module, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				return bytes.Contains(module, []byte{0x41, 0xb4, 0x24, 0x0b}) // i32.const 4660, end.
			}
			for n, dir := range []string{deny, allow, deny, deny, allow} {
				if got := denies(dir); got != (dir == deny) {
					t.Errorf("build %d denies: %t", n, got)
				}
			}
			// Another version in the same place, with the times of before.
			long := time.Now().Add(-time.Hour)
			for file, text := range files("4660") {
				file = filepath.Join(allow, file)
				if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.Chtimes(file, long, long)); err != nil {
					t.Fatal(err)
				}
			}
			if !denies(allow) {
				t.Error("sources that seem older were not built")
			}
		})
	}
}

// TestWarnings holds that what compilers say of a guest that they build is passed on, also of one
// that was built before, and that a function of C without its last return is no guest.
func TestWarnings(t *testing.T) {
	const unused = "__attribute__((export_name(\"filter\"))) int filter(long long c, long long p, long long n) { int idle = 0; (void)c; (void)p; (void)n; return 0; }\n"
	const manifest = "[package]\nname = \"plugin\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"C":    {map[string]string{"main.c": unused}, "main.c:1:96: warning: unused variable 'idle'"},
		"Rust": {map[string]string{"Cargo.toml": manifest, "src/lib.rs": "#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n#[no_mangle]\npub extern \"C\" fn filter(_: i64, _: i64, _: i64) -> i32 { let idle = 0; 0 }\n"}, "unused variable: `idle`"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFiles(t, c.files)
			for n := range 2 {
				var said bytes.Buffer
				if _, err := compile(t, Config{Dir: dir, Warnings: &said}); err != nil || !strings.Contains(said.String(), c.want) {
					t.Errorf("build %d: error %v, said %q, want %s", n, err, said.String(), c.want)
				}
			}
		})
	}
	dir := writeFiles(t, map[string]string{"main.c": "__attribute__((export_name(\"filter\"))) int filter(long long c, long long p, long long n) { if (c == p + n) return 2; }\n"})
	if _, err := compile(t, Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "non-void function does not return a value in all control paths") {
		t.Errorf("a function without its last return: %v", err)
	}
}
