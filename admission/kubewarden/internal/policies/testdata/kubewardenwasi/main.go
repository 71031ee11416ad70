// Kubewardenwasi is a policy for Kubewarden that is a program: it reads a request
// from standard input and writes its verdict to standard output. What it asks the
// host for comes by standard input, too.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"unsafe"
)

//go:wasmimport host call
//go:noescape
func hostCall(binding unsafe.Pointer, bindingLen uint32, namespace unsafe.Pointer, namespaceLen uint32, operation unsafe.Pointer, operationLen uint32, payload unsafe.Pointer, payloadLen uint32) uint32

// call asks the host, which answers 0 if all is well.
func call(namespace, operation, payload string) uint32 {
	pointer := func(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(s)) }
	const binding = "kubewarden"
	return hostCall(pointer(binding), uint32(len(binding)), pointer(namespace), uint32(len(namespace)), pointer(operation), uint32(len(operation)), pointer(payload), uint32(len(payload)))
}

// look asks for a Namespace, and says what it is or why there is none.
func look(name string) string {
	failed := call("kubernetes", "get_resource", `{"api_version":"v1","kind":"Namespace","name":"`+name+`","disable_cache":false}`)
	answer, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err.Error()
	}
	if failed != 0 {
		return string(answer)
	}
	var object struct{ Kind string }
	if err := json.Unmarshal(answer, &object); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s of %d bytes", object.Kind, len(answer))
}

type request struct {
	Request struct {
		UID    string          `json:"uid"`
		Object json.RawMessage `json:"object"`
	} `json:"request"`
	Settings settings `json:"settings"`
}

type settings struct {
	Deny   string `json:"deny"`
	Mutate bool   `json:"mutate"`
	Ask    string `json:"ask"`
	Flood  bool   `json:"flood"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "want one argument")
		os.Exit(2)
	}
	in := json.NewDecoder(os.Stdin)
	var out any
	switch os.Args[1] {
	case "validate-settings":
		var s settings
		in.DisallowUnknownFields()
		if err := in.Decode(&s); err != nil {
			out = map[string]any{"valid": false, "message": err.Error()}
			break
		}
		out = map[string]any{"valid": true}
	case "validate":
		var r request
		if err := in.Decode(&r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		switch {
		case r.Settings.Ask != "":
			out = map[string]any{"accepted": false, "message": look("shop") + ", then " + look("none")}
		case r.Settings.Flood:
			for {
				call("kubernetes", "get_resource", `{"api_version":"v1","kind":"Namespace","name":"shop","disable_cache":false}`)
			}
		case r.Settings.Mutate:
			out = map[string]any{"accepted": true, "mutated_object": map[string]any{"uid": r.Request.UID}}
		case r.Settings.Deny != "":
			out = map[string]any{"accepted": false, "message": r.Settings.Deny + " " + string(r.Request.Object)}
		default:
			out = map[string]any{"accepted": true}
		}
	default:
		os.Exit(3)
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		os.Exit(1)
	}
}
