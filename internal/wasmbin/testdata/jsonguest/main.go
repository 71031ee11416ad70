// A guest that decodes, changes and encodes JSON, for the tests of the rewriter.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

type node struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Taints      []taint           `json:"taints"`
	Allocatable map[string]int64  `json:"allocatable"`
}

type taint struct{ Key, Value, Effect string }

var nodes []byte

func init() {
	var list []node
	for i := range 20 {
		list = append(list, node{
			Name:        fmt.Sprintf("node-%d", i),
			Labels:      map[string]string{"zone": fmt.Sprint("z", i%3), "arch": "amd64", "pool": "general"},
			Taints:      []taint{{"dedicated", fmt.Sprint("team-", i), "NoSchedule"}},
			Allocatable: map[string]int64{"cpu": int64(i) * 1000, "memory": int64(i) << 30},
		})
	}
	nodes, _ = json.Marshal(list)
}

var last []byte

// work runs rounds of JSON work and returns a checksum of the result.
//
//go:wasmexport work
func work(rounds int32) int64 {
	var sum int64
	for range rounds {
		var list []node
		if err := json.Unmarshal(nodes, &list); err != nil {
			return -1
		}
		slices.SortFunc(list, func(a, b node) int { return strings.Compare(b.Labels["zone"]+b.Name, a.Labels["zone"]+a.Name) })
		for i := range list {
			list[i].Labels["rank"] = fmt.Sprint(i)
		}
		last, _ = json.Marshal(list)
		for _, c := range last {
			sum = sum*31 + int64(c)
		}
	}
	return sum
}

// hash returns a part of the SHA-256 of so many KiB: straight code over memory.
//
//go:wasmexport hash
func hash(kib int32) int64 {
	sum := sha256.Sum256(make([]byte, int(kib)<<10))
	return int64(binary.LittleEndian.Uint64(sum[:]))
}

// sorted sorts so many numbers: branches and calls.
//
//go:wasmexport sorted
func sorted(n int32) int64 {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i * 7919 % 10007
	}
	slices.SortFunc(numbers, func(a, b int) int { return a - b })
	return int64(numbers[n/2])
}

// fail panics, for the test of stack traces.
//
//go:wasmexport fail
func fail(depth int32) {
	if depth > 0 {
		fail(depth - 1)
	}
	panic("as asked")
}

func main() {}
