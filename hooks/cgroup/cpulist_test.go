package cgroup

import "testing"

// Ranges are added by words: the list is that of adding each number.
func TestListsOfRanges(t *testing.T) {
	for _, text := range []string{"0", "63", "64", "0-63", "1-62", "63-64", "5-200", "64-127", "8191", "0-8191", "8000-8191,3,60-70"} {
		got, err := parseList(text)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != text && text != "8000-8191,3,60-70" || text == "8000-8191,3,60-70" && got.String() != "3,60-70,8000-8191" {
			t.Errorf("%s is %s", text, got)
		}
	}
}
