//go:build !linux

package main

import "errors"

func resident() (uint64, error) {
	return 0, errors.New("resident memory is measured on Linux only")
}

func benchShared(*bench) error {
	return errors.New("the memory of child processes is measured on Linux only")
}
