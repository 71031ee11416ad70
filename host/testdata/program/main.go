// Program is a guest that is a command: it answers what it finds on standard
// input in capitals, in the way that its argument says.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

var runs int

func main() {
	runs++
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	switch os.Args[1] {
	case "upper":
		fmt.Printf("%d %d: %s", len(os.Args), runs, bytes.ToUpper(input))
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot go on")
		os.Exit(3)
	case "flood":
		for {
			os.Stdout.Write(make([]byte, 4096))
		}
	case "loop":
		for {
		}
	}
}
