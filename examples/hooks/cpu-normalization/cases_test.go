package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/cmd/kubewasm/cases"
)

func TestCases(t *testing.T) { cases.Test(t, "cases.yaml", ".") }
