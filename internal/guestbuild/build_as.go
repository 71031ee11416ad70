package guestbuild

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// AssemblyScript is compiled by asc of the npm package assemblyscript, with the options of
// asconfig.json. The file to compile is assembly/index.ts. The metadata are directives in comments
// of the files in assembly.
var AssemblyScript = &Language{
	Name: "as", Title: "AssemblyScript", is: func(name string) bool { return name == "asconfig.json" },
	compile: compileAssemblyScript,
	declared: func(dir string) (*source, error) {
		files, err := filepath.Glob(filepath.Join(globEscape.Replace(dir), "assembly", "*.ts"))
		if err != nil {
			return nil, err
		}
		return readComments(dir, files)
	},
}

func compileAssemblyScript(ctx context.Context, cfg Config, scratch string) ([]byte, error) {
	npx, err := exec.LookPath("npx")
	if err != nil {
		return nil, &MissingToolError{"AssemblyScript", "npx", "install Node.js and npm (https://nodejs.org; Debian: apt install npm)"}
	}
	check := exec.CommandContext(ctx, npx, "--no-install", "asc", "--version")
	check.Dir = cfg.Dir
	if err := check.Run(); err != nil {
		return nil, &MissingToolError{"AssemblyScript", "asc", "run npm install in " + cfg.Dir + ", or npm install --save-dev assemblyscript"}
	}
	linked := filepath.Join(scratch, "linked.wasm")
	target := "release"
	if cfg.Debug {
		target = "debug"
	}
	cmd := exec.CommandContext(ctx, npx, "--no-install", "asc", filepath.Join("assembly", "index.ts"), "--target", target, "--outFile", linked)
	cmd.Dir = cfg.Dir
	if err := run(ctx, cmd); err != nil {
		return nil, err
	}
	return os.ReadFile(linked)
}
