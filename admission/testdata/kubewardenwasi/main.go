// Kubewardenwasi is a policy for Kubewarden that is a program: it reads a request
// from standard input and writes its verdict to standard output.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

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
