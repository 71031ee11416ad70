package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// result is what the tests of a minor did.
type result struct {
	minor string
	// passed are the packages that passed, by the part of the path behind the repository's, and how
	// many tests did where they were counted.
	passed map[string]int
	// attributes are the values of the attributes of tests, without repetitions.
	attributes map[string][]string
}

// runner runs tests.
type runner struct {
	// guests is the directory of the modules of the run.
	guests         string
	verbose, quick bool // As the flags.
}

const module = "github.com/kubewasm/kubewasm"

// readers are the packages of the root module that read, write and watch objects by their Go types.
var readers = []string{module + "/codec/...", module + "/internal/informers", module + "/internal/objects/...", module + "/sched", module + "/admission/admissiontest", module + "/admission/stellar", module + "/hooks/nodewatch", module + "/host/service/..."}

// newest is the minor of internal/testkit/e2e/go.mod.
const newest = "1.37"

// files are the names that the files of a minor have: "135".
func files(minor string) string { return strings.ReplaceAll(minor, ".", "") }

// test runs all tests of a minor.
func (r *runner) test(ctx context.Context, minor string) (*result, error) {
	res := &result{minor: minor, passed: map[string]int{}, attributes: map[string][]string{}}
	adapter := "kube" + files(minor)
	modfile := "go.mod"
	if minor != newest {
		modfile = "go" + files(minor) + ".mod"
	}
	e2e := filepath.Join("internal", "testkit", "e2e")
	start := time.Now()
	args := []string{"-modfile=" + modfile, "-tags=" + adapter, "./..."}
	var err error
	if r.quick {
		// Tests of control planes wait for a part of their time.
		err = r.goTest(ctx, res, e2e, slices.Concat([]string{"-p=3"}, args, []string{module + "/sched/" + adapter}, readers)...)
	} else {
		err = r.goTest(ctx, res, e2e, args...)
		err = errors.Join(r.packages(ctx, res, filepath.Join("sched", adapter), "./..."), err, r.root(ctx, res))
	}
	fmt.Printf("== Kubernetes %s: %s\n", minor, time.Since(start).Round(time.Second))
	if err != nil {
		return res, fmt.Errorf("test Kubernetes %s: %w", minor, err)
	}
	return res, nil
}

// root runs the tests of the root module for packages that import Kubernetes', with the
// Kubernetes modules of the minor, as for an importer who has chosen those.
func (r *runner) root(ctx context.Context, res *result) error {
	dir, err := os.MkdirTemp("", "kubewasm-root-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	modfile := "-modfile=" + filepath.Join(dir, "go.mod")
	staging, err := output(ctx, filepath.Join("sched", "kube"+files(res.minor)), "go", "list", "-m", "-f", "{{.Path}}@{{.Version}}", "k8s.io/api")
	if err != nil {
		return err
	}
	_, version, _ := strings.Cut(staging, "@")
	edited, err := output(ctx, ".", "go", "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var root struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal([]byte(edited), &root); err != nil {
		return fmt.Errorf("read the root's go.mod: %w", err)
	}
	get := []string{"get", modfile}
	for _, m := range root.Require {
		// The modules that are released with Kubernetes; klog and utils are not.
		if strings.HasPrefix(m.Path, "k8s.io/") && strings.HasPrefix(m.Version, "v0.3") {
			get = append(get, m.Path+"@"+version)
		}
	}
	if _, err := output(ctx, ".", "go", get...); err != nil {
		return err
	}
	flags := []string{modfile, "-mod=mod"}
	patterns := []string{"./admission/...", "./hooks/...", "./host/...", "./codec/...", "./internal/objects/...", "./sched/..."}
	packages, err := importers(ctx, flags, patterns...)
	if err != nil {
		return err
	}
	return r.packages(ctx, res, ".", append(flags, packages...)...)
}

// importers returns the packages that have a package of Kubernetes in them.
func importers(ctx context.Context, flags []string, patterns ...string) (packages []string, err error) {
	args := append([]string{"list", "-f", `{{.ImportPath}} {{join .Deps " "}}`}, flags...)
	list, err := output(ctx, ".", "go", append(args, patterns...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		if strings.Contains(line, " k8s.io/") {
			packages = append(packages, strings.Fields(line)[0])
		}
	}
	return packages, nil
}

// packages runs go test with the arguments in dir and adds to res which packages passed.
func (r *runner) packages(ctx context.Context, res *result, dir string, args ...string) error {
	args = append([]string{"test", "-timeout=50m"}, args...)
	fmt.Printf("== Kubernetes %s: (cd %s && go %s)\n", res.minor, dir, strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &printed), os.Stderr
	err := cmd.Run()
	for line := range strings.Lines(printed.String()) {
		if rest, ok := strings.CutPrefix(line, "ok  \t"); ok {
			path, _, _ := strings.Cut(rest, "\t")
			res.passed[strings.TrimPrefix(path, "github.com/kubewasm/kubewasm/")]++
		}
	}
	if err != nil {
		return fmt.Errorf("test %s: %w", dir, err)
	}
	return nil
}

// goTest runs the tests in dir and adds to res what they did, one by one.
func (r *runner) goTest(ctx context.Context, res *result, dir string, args ...string) error {
	args = append([]string{"test", "-json", "-timeout=50m"}, args...)
	fmt.Printf("== Kubernetes %s: (cd %s && go %s)\n", res.minor, dir, strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBEWASM_E2E_GUESTS="+r.guests)
	if r.quick {
		cmd.Env = append(cmd.Env, "KUBEWASM_E2E_QUICK=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed, err := res.read(out, r.verbose)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		fmt.Printf("== Kubernetes %s: %v\n%s\n", res.minor, err, failed) // The rest takes long.
		return fmt.Errorf("test %s: %w", dir, err)
	}
	return nil
}

// event is a line that go test -json prints.
type event struct {
	Action, Package, Test, Output, Key, Value string
	Elapsed                                   float64 // Seconds.
}

// read adds the events of go test to the result. It returns what failed tests and builds
// printed.
func (res *result) read(from io.Reader, verbose bool) (failed string, err error) {
	printed := map[string]*strings.Builder{}
	var all strings.Builder
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return all.String(), fmt.Errorf("read %.200q: %w", lines.Text(), err)
		}
		name := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			if verbose {
				fmt.Print(e.Output)
			}
			if e.Action == "build-output" {
				all.WriteString(e.Output)
				continue
			}
			if printed[name] == nil {
				printed[name] = new(strings.Builder)
			}
			printed[name].WriteString(e.Output)
		case "attr":
			if !slices.Contains(res.attributes[e.Key], e.Value) {
				res.attributes[e.Key] = append(res.attributes[e.Key], e.Value)
			}
		case "pass":
			if e.Test != "" {
				res.passed[strings.TrimPrefix(e.Package, "github.com/kubewasm/kubewasm/")]++
			} else {
				fmt.Printf("ok  \t%s\t%.1fs\n", e.Package, e.Elapsed)
			}
			delete(printed, name)
		case "skip":
			delete(printed, name)
		case "fail":
			if p := printed[name]; p != nil {
				all.WriteString(p.String())
			}
		}
	}
	return all.String(), lines.Err()
}

// output returns what a command prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
