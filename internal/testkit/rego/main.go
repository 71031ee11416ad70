// Command rego compiles a policy in Rego to a WebAssembly module, as opa build -t
// wasm does, without a network.
//
//	go run . -e ENTRYPOINT -o OUT.wasm POLICY.rego
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/kubewasm/kubewasm/internal/testkit/rego/compile"
)

func main() {
	entrypoint := flag.String("e", "", "the `rule` to evaluate, such as policy/main")
	out := flag.String("o", "", "the `file` to write")
	flag.Parse()
	if err := run(*entrypoint, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "rego:", err)
		os.Exit(1)
	}
}

func run(entrypoint, out string, files []string) error {
	if entrypoint == "" || out == "" || len(files) != 1 {
		return fmt.Errorf("want -e, -o and one file")
	}
	module, err := compile.File(context.Background(), entrypoint, files[0])
	if err != nil {
		return err
	}
	return os.WriteFile(out, module, 0o644)
}
