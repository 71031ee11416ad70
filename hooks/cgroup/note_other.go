//go:build !linux

package cgroup

import "os"

func setAttribute(*os.File, string, string) {}

func attributes(*os.File) []string { return nil }

func attribute(*os.File, string) (text string, ok bool) { return "", false }

func removeAttribute(*os.File, string) {}
