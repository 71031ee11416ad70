//go:build !linux

package program

func dropCode() {}
