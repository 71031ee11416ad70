// Command adapters writes the common files of the adapters of the minors of Kubernetes, so that
// they cannot drift apart:
//
//	go generate ./sched
//
// sched/kube137 is written by hand. kube136 and kube138 inherit each of its declarations that they
// do not make themselves, in files that end in .gen.go, and kube135 those of kube136. A declaration
// that older minors lack is marked in its comment:
//
//	//minor:since 1.37
//
// All of them get a composed.gen.go: a struct for each set of the extension points that a plugin
// must not have unless its guest does.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// adapters are the packages in the order in which they inherit. The minor of a package is in
// its name.
var adapters = []struct{ name, from string }{
	{"kube137", ""},
	{"kube138", "kube137"},
	{"kube136", "kube137"},
	{"kube135", "kube136"},
}

// points are the types of an adapter that each have the methods of one extension point, and
// the first minor that has it.
var points = []struct {
	name  string
	since string
}{
	{"queueSort", "kube135"}, {"placementGenerate", "kube136"}, {"enqueue", "kube135"},
	{"filter", "kube135"}, {"postFilter", "kube135"}, {"score", "kube135"},
}

// inheritedTests are the tests that run in every adapter. The other tests of kube137 test the
// engine, which is the same for all.
var inheritedTests = []string{"adapter_test.go", "guarded_test.go"}

func main() {
	log.SetFlags(0)
	for _, a := range adapters {
		files := map[string][]byte{}
		if a.from != "" {
			var err error
			if files, err = inherit(a.from, a.name); err != nil {
				log.Fatalf("%s: %v", a.name, err)
			}
		}
		var own []string
		for _, p := range points {
			if p.since <= a.name {
				own = append(own, p.name)
			}
		}
		source, err := composed(a.name, own)
		if err != nil {
			log.Fatalf("%s: %v", a.name, err)
		}
		files["composed.gen.go"] = source
		if err := write(a.name, files); err != nil {
			log.Fatalf("%s: %v", a.name, err)
		}
	}
}

// inherit returns the files that an adapter inherits, by their names.
func inherit(from, to string) (map[string][]byte, error) {
	files := map[string][]byte{}
	own, err := declaredIn(to)
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		base := filepath.Base(name)
		test := strings.Replace(base, ".gen", "", 1)
		if base == "composed.gen.go" || strings.HasSuffix(test, "_test.go") && !slices.Contains(inheritedTests, test) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if text, err = take(name, text, from, to, own); err != nil {
			return nil, err
		}
		if text != nil {
			files[generatedName(base, from)] = text
		}
	}
	return files, nil
}

// generatedName is the name of a generated file. It is derived from the name of the source's
// adapter for declarations in its minor.go.
func generatedName(base, from string) string {
	test := strings.HasSuffix(base, "_test.go")
	base = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(base, ".go"), "_test"), ".gen")
	if base == "minor" {
		base = from
	}
	if test {
		return base + ".gen_test.go"
	}
	return base + ".gen.go"
}

// write writes the generated files of an adapter, and removes those of before.
func write(adapter string, files map[string][]byte) error {
	var old []string
	for _, pattern := range []string{"*.gen.go", "*.gen_test.go"} {
		found, err := filepath.Glob(filepath.Join(adapter, pattern))
		if err != nil {
			return err
		}
		old = append(old, found...)
	}
	var errs []error
	for _, name := range old {
		errs = append(errs, os.Remove(name))
	}
	for name, text := range files {
		errs = append(errs, os.WriteFile(filepath.Join(adapter, name), text, 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the generated files: %w", err)
	}
	return nil
}
