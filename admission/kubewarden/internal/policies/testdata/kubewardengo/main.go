// Kubewardengo is a policy for Kubewarden in Go, by waPC alone: objects must have
// the labels of its settings.
package main

import (
	"encoding/json"
	"unsafe"
)

//go:wasmimport wapc __guest_request
func guestRequest(op, payload unsafe.Pointer)

//go:wasmimport wapc __guest_response
func guestResponse(ptr unsafe.Pointer, n uint32)

//go:wasmimport wapc __guest_error
func guestError(ptr unsafe.Pointer, n uint32)

type settings struct {
	Labels []string `json:"labels"`
}

type payload struct {
	Request struct {
		Object struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		} `json:"object"`
	} `json:"request"`
	Settings settings `json:"settings"`
}

//go:wasmexport __guest_call
func guestCall(opLen, payloadLen uint32) uint32 {
	// One byte more, so that there is an address if there are none.
	op, in := make([]byte, opLen+1), make([]byte, payloadLen+1)
	guestRequest(unsafe.Pointer(&op[0]), unsafe.Pointer(&in[0]))
	answer, err := call(string(op[:opLen]), in[:payloadLen])
	if err != nil {
		text := []byte(err.Error())
		guestError(unsafe.Pointer(&text[0]), uint32(len(text)))
		return 0
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return 0
	}
	guestResponse(unsafe.Pointer(&out[0]), uint32(len(out)))
	return 1
}

func call(op string, in []byte) (any, error) {
	switch op {
	case "protocol_version":
		return "v1", nil
	case "validate_settings":
		var s settings
		if err := json.Unmarshal(in, &s); err != nil {
			return nil, err
		}
		return map[string]any{"valid": len(s.Labels) != 0}, nil
	}
	var p payload
	if err := json.Unmarshal(in, &p); err != nil {
		return nil, err
	}
	for _, label := range p.Settings.Labels {
		if p.Request.Object.Metadata.Labels[label] == "" {
			return map[string]any{"accepted": false, "message": "label " + label + " is missing", "code": 400}, nil
		}
	}
	return map[string]any{"accepted": true}, nil
}

func main() {}
