package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsNameTestsThatExist holds that a test which a document refers to is there.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	const root = "../../.."
	declared := map[string]bool{}
	var documents []string
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case strings.HasSuffix(path, ".md"):
			documents = append(documents, path) // With examples of tests in it.
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil || len(documents) == 0 || len(declared) == 0 {
		t.Fatalf("%d documents, %d tests, error %v", len(documents), len(declared), err)
	}
	name := regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+\b`)
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range name.FindAllString(string(text), -1) {
			if !declared[n] {
				t.Errorf("%s names %s, which does not exist", strings.TrimPrefix(document, root+"/"), n)
			}
		}
	}
}
