package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/examples/controller/internal/cases"
)

func TestReplicas(t *testing.T) { cases.Run(t, &schedule{}) }
