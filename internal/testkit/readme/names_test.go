package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentsNameTestsThatExist holds that a test which a document refers to is
// there, and in the package that the document gives: host.TestLoad is in a directory
// whose path ends with host.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	declared := map[string][]string{} // The directories with a test of that name.
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
			name := string(m[1])
			declared[name] = append(declared[name], "/"+filepath.ToSlash(filepath.Dir(path)))
		}
		return err
	})
	if err != nil || len(documents) == 0 || len(declared) == 0 {
		t.Fatalf("%d documents, %d tests, error %v", len(documents), len(declared), err)
	}
	name := regexp.MustCompile(`(?:\b([a-z0-9/-]+)\.)?\b((?:Test|Benchmark|Fuzz)[A-Z]\w+)\b`)
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			if !slices.ContainsFunc(declared[m[2]], func(dir string) bool {
				return m[1] == "" || strings.HasSuffix(dir, "/"+m[1])
			}) {
				t.Errorf("%s names %s, which does not exist", strings.TrimPrefix(document, root+"/"), m[0])
			}
		}
	}
}

// TestReportedFaultsAreWhole holds that each row of docs/sources.md has the address of an issue or
// a pull request, what was tried, the result before and now, and a test.
func TestReportedFaultsAreWhole(t *testing.T) {
	address := regexp.MustCompile(`^https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+$`)
	rows := regexp.MustCompile(`(?m)^\| (http.*) \|$`).FindAllStringSubmatch(read(t, "docs/sources.md"), -1)
	if len(rows) < 25 {
		t.Fatalf("only %d rows", len(rows))
	}
	for _, row := range rows {
		cells := strings.Split(row[1], " | ")
		if len(cells) != 5 || slices.Contains(cells, "") {
			t.Errorf("not five cells: %s", row[1])
			continue
		}
		for a := range strings.SplitSeq(cells[0], ", ") {
			if !address.MatchString(a) {
				t.Errorf("%q is no address of an issue", a)
			}
		}
		if !regexp.MustCompile("`(Test|Fuzz)[A-Z]\\w+`").MatchString(cells[4]) {
			t.Errorf("no test: %s", row[1])
		}
	}
}

// TestLinksLeadSomewhere holds that the files and headings are there to which documents link.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, document := range append(documents(t), "cmd/kubewasm-webhook/README.md", "abi/SPEC.md") {
		for _, m := range link.FindAllStringSubmatch(read(t, document), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // Elsewhere.
			}
			file := document
			if target != "" {
				file = filepath.Join(filepath.Dir(document), target)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which does not exist", document, m[1])
			} else if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", document, m[1])
			}
		}
	}
}

// TestFunctionsOfArchitectureAreInTheirFiles holds that the functions of docs/architecture.md are in the files beside them.
func TestFunctionsOfArchitectureAreInTheirFiles(t *testing.T) {
	rows := regexp.MustCompile("(?m)\\| `(?:\\w+\\.)?(\\w+)` \\| \\[(\\S+)\\]").FindAllStringSubmatch(read(t, "docs/architecture.md"), -1)
	if len(rows) < 30 {
		t.Fatalf("only %d functions", len(rows))
	}
	for _, row := range rows {
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + row[1] + `[\[(]`).MatchString(read(t, row[2])) {
			t.Errorf("docs/architecture.md: there is no function %s in %s", row[1], row[2])
		}
	}
}

// anchors returns the anchors that the forge makes of the headings of a document.
func anchors(text string) (list []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		list = append(list, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return list
}
