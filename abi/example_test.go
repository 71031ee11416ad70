package abi_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/abi"
)

// A host hands bytes to a guest, whose buffer is too small at first.
func ExampleWrite() {
	memory := make([]byte, 1024)
	node := []byte("the bytes of a Node")

	n, _ := abi.Write(memory, 512, 8, node)
	fmt.Println(n, memory[512])

	n, _ = abi.Write(memory, 512, n, node)
	fmt.Println(n, string(memory[512:512+n]))
	// Output:
	// 19 0
	// 19 the bytes of a Node
}

// A guest returns a score together with a status code.
func ExamplePack() {
	packed := abi.Pack(42, abi.Success)
	score, code := abi.Unpack[abi.Code](packed)
	fmt.Printf("%#x %d %s\n", packed, score, code)
	// Output: 0x2a00000000 42 Success
}
