//go:build wasip1

// The work guest does what guests of standard Go spend their time on. It stands
// on the ABI alone, without the SDK, so that plain wazero can run it as well.
package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

type node struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Allocatable map[string]int64  `json:"allocatable"`
}

var (
	nodes   []byte
	names   []string
	scratch []string
)

func init() {
	var list []node
	for i := range 10 {
		list = append(list, node{
			Name:        fmt.Sprintf("node-%d", i),
			Labels:      map[string]string{"zone": fmt.Sprint("z", i%3), "arch": "amd64", "pool": "general"},
			Allocatable: map[string]int64{"cpu": int64(i) * 1000, "memory": int64(i) << 30},
		})
	}
	nodes, _ = json.Marshal(list)
	for i := range 1000 {
		names = append(names, fmt.Sprintf("node-%d", i*7919%10007))
	}
	scratch = make([]string, len(names))
}

//go:wasmexport kubewasm_abi_v1
func marker() int64 { return 1 << 7 } // filter

// filter does the work that pod names, and returns 0 if it went well.
//
//go:wasmexport filter
func filter(_, pod, _ int64) int32 {
	switch pod {
	case 1: // JSON: decode, look, encode.
		var list []node
		if err := json.Unmarshal(nodes, &list); err != nil {
			return 1
		}
		again, err := json.Marshal(list)
		if err != nil || len(again) != len(nodes) {
			return 1
		}
	case 2: // Sort by name.
		copy(scratch, names)
		slices.SortFunc(scratch, strings.Compare)
		if scratch[0] != "node-0" {
			return 1
		}
	case 3:
		panic("as asked")
	}
	return 0
}

func main() {}
