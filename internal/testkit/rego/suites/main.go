// Command suites runs collections of Gatekeeper's policies by a built kubewasm, as gator verify
// does: each case of each suite.yaml below a directory. It prints the cases whose verdict is
// another one, and the number of all.
//
//	go run ./suites -kubewasm FILE DIR
//
// The module of a template lies beside it, as template.wasm for template.yaml: opa build -t wasm
// makes it of the template's Rego and its libraries, with the entrypoint PACKAGE/violation.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	command := flag.String("kubewasm", "kubewasm", "the `file` of the command")
	flag.Parse()
	if err := run(*command, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

// suite is a suite.yaml. Its files are relative to it.
type suite struct {
	Tests []struct {
		Name, Template, Constraint string
		Cases                      []testCase
	}
}

type testCase struct {
	Name, Object string
	Inventory    []string
	Assertions   []struct {
		// Violations is yes, no or a number, and yes by default. Those that Message matches count.
		Violations any
		Message    string
	}
}

func run(command string, dirs []string) error {
	if len(dirs) != 1 {
		return errors.New("want one directory")
	}
	cases, wrong := 0, 0
	err := filepath.WalkDir(dirs[0], func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "suite.yaml" {
			return err
		}
		var s suite
		if err := read(path, &s); err != nil {
			return err
		}
		for _, t := range s.Tests {
			for i := range t.Cases {
				cases++
				if err := t.Cases[i].run(command, filepath.Dir(path), t.Template, t.Constraint); err != nil {
					wrong++
					fmt.Printf("%s: %s: %s: %v\n", path, t.Name, t.Cases[i].Name, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d cases, %d wrong\n", cases, wrong)
	if wrong != 0 || cases == 0 {
		return errors.New("not all cases are right")
	}
	return nil
}

// run asks the policy about the object, and compares its verdict with the assertions.
func (c *testCase) run(command, dir, template, constraint string) error {
	var declared struct {
		Spec struct{ Parameters json.RawMessage }
	}
	if err := read(filepath.Join(dir, constraint), &declared); err != nil {
		return err
	}
	settings, err := os.CreateTemp("", "settings*.json")
	if err != nil {
		return err
	}
	defer os.Remove(settings.Name())
	if len(declared.Spec.Parameters) == 0 {
		declared.Spec.Parameters = []byte("{}")
	}
	if _, err := settings.Write(declared.Spec.Parameters); err != nil {
		return err
	}
	if err := settings.Close(); err != nil {
		return err
	}
	args := []string{"run", "--gatekeeper", "-o", "json", "-f", filepath.Join(dir, c.Object), "--config", settings.Name()}
	for _, file := range c.Inventory {
		args = append(args, "--objects", filepath.Join(dir, file))
	}
	text, err := os.ReadFile(filepath.Join(dir, template))
	if err != nil {
		return err
	}
	if len(c.Inventory) == 0 && bytes.Contains(text, []byte("data.inventory")) {
		args = append(args, "--see", "v1/Namespace") // It looks, and finds nothing.
	}
	var out, stderr bytes.Buffer
	cmd := exec.Command(command, append(args, strings.TrimSuffix(filepath.Join(dir, template), ".yaml")+".wasm")...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 2) { // 2 is a denial.
		return fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	var answer struct{ Verdicts []struct{ Message string } }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return err
	}
	said := "" // The messages of the violations, one after the other.
	for _, v := range answer.Verdicts {
		said += v.Message
	}
	for _, a := range c.Assertions {
		matches, err := regexp.MatchString(a.Message, said)
		if err != nil {
			return err
		}
		want := a.Violations != false && a.Violations != "no" && a.Violations != 0.0
		if got := exit != nil && matches; got != want {
			return fmt.Errorf("violations %v with the message %q: %q", a.Violations, a.Message, said)
		}
	}
	return nil
}

// read decodes a file of YAML.
func read(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
