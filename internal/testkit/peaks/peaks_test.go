package main

import "testing"

// TestAnOrdinaryModuleIsAccepted holds that the modules of the rows are refused for what is
// hostile in them, and not for a mistake.
func TestAnOrdinaryModuleIsAccepted(t *testing.T) {
	if err := load(function(1, 1, 1, call))(t.Context(), t.TempDir()); err != nil {
		t.Error(err)
	}
}
