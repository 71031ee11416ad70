package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/guesttest/cases"
)

func TestCases(t *testing.T) { cases.Test(t, "cases.yaml", ".") }
