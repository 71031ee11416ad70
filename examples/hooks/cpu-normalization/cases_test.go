package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/host/cases"
)

func TestCases(t *testing.T) { cases.Test(t, "cases.yaml", ".") }
