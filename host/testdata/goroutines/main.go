// A guest in Go whose functions wait for each other, and whose stacks are moved.
package main

import "sync"

func main() {}

//go:wasmexport kubewasm_abi_v1
func marker() int64 { return 1 << 7 } // filter

//go:wasmexport filter
func filter(_, _, node int64) int32 {
	return outer(int(node))
}

//go:noinline
func outer(n int) int32 { return inner(n) + 1 }

//go:noinline
func inner(n int) (sum int32) {
	in, out := make(chan int32), make(chan int32)
	var group sync.WaitGroup
	group.Add(1)
	go worker(in, out, &group)
	for i := range n {
		in <- int32(i)
		sum += <-out
		spin()
	}
	close(in)
	group.Wait()
	return sum + deep(n*100)
}

//go:noinline
func worker(in <-chan int32, out chan<- int32, group *sync.WaitGroup) {
	defer group.Done()
	for n := range in {
		out <- square(n)
	}
}

//go:noinline
func square(n int32) int32 { return n * n }

//go:noinline
func spin() {
	for i := range 100 {
		sink += i
	}
}

// deep needs more stack than a goroutine begins with.
//
//go:noinline
func deep(n int) int32 {
	var room [64]int
	room[n%64] = n
	if n == 0 {
		spin()
		return 0
	}
	return deep(n-1) + int32(room[n%64]-n)
}

var sink int
