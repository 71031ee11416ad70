// Program is a guest that is a command: it answers what it finds on standard
// input in capitals, in the way that its argument says.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"
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
	case "close":
		fmt.Println(os.Stdin.Close(), os.Stderr.Close(), os.Stdout.Close())
		fmt.Println("nobody sees this")
	case "world":
		world()
	case "loop":
		for {
		}
	}
}

// world prints what a program finds when it looks for more than its streams.
func world() {
	print := func(what string, answers ...any) { fmt.Println(append([]any{what + ":"}, answers...)...) }
	print("arguments", len(os.Args))
	print("environment", os.Environ())
	wd, err := os.Getwd()
	print("working directory", wd, err)
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		stat, err := f.Stat()
		print(f.Name(), stat.Mode(), stat.Size(), stat.ModTime().Year(), err)
		at, err := f.Seek(0, io.SeekCurrent)
		print("seek", at, err)
		n, err := f.ReadAt(make([]byte, 8), 0)
		print("read at", n, err)
		n, err = f.WriteAt(make([]byte, 8), 0)
		print("write at", n, err)
		print("truncate", f.Truncate(1))
		print("sync", f.Sync())
		print("deadline", f.SetDeadline(time.Now()))
		entries, err := f.ReadDir(1)
		print("read directory", entries, err)
	}
	_, err = os.Stdin.Write([]byte("x"))
	print("write to standard input", err)
	_, err = os.Stdout.Read(make([]byte, 8))
	print("read standard output", err)
	f := os.NewFile(3, "three")
	_, err = f.Write([]byte("x"))
	print("write to descriptor 3", err)
	for _, name := range []string{"file", "/etc/passwd", "", ".", "/"} {
		_, err = os.Open(name)
		print("open", err)
		_, err = os.Create(name)
		print("create", err)
		_, err = os.Stat(name)
		print("stat", err)
		_, err = os.ReadDir(name)
		print("read directory", err)
		_, err = os.Readlink(name)
		print("read link", err)
		print("make directory", os.Mkdir(name, 0o700))
		print("remove", os.Remove(name))
		print("rename", os.Rename(name, "other"))
		print("link", os.Link(name, "other"))
		print("symbolic link", os.Symlink("other", name))
		print("times", os.Chtimes(name, time.Time{}, time.Time{}))
		print("change directory", os.Chdir(name))
	}
	print("year", time.Now().UTC().Year())
	before := time.Now()
	time.Sleep(time.Millisecond)
	print("slept", time.Since(before) >= time.Millisecond)
	done := make(chan bool)
	go func() { done <- true }()
	print("goroutine", <-done)
	print("close", os.Stdin.Close(), os.Stdin.Close())
	_, err = os.Stdin.Read(make([]byte, 8))
	print("read what is closed", err)
}
