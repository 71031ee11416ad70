package bindgen_test

import "testing"

func compileHostile(t *testing.T, place, text string) {}
