package readme

import (
	"io/fs"
	"os"
	"os/exec"
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
		case err == nil && d.IsDir() && (d.Name() == "node_modules" || path == filepath.Join(root, "docs/site/src")):
			return filepath.SkipDir // Of others, and copies.
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
	for _, document := range tracked(t, "*.md") {
		if strings.Contains(document, "/testdata/") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(prose(read(t, document)), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // Elsewhere.
			}
			file := document
			if target != "" {
				file = filepath.Join(filepath.Dir(document), target)
			}
			leads(t, document, file, anchor)
		}
	}
}

// TestSourcesNameDocuments holds the same of the documents and headings that comments, messages, charts and
// templates name, by their path or by their address in the forge.
func TestSourcesNameDocuments(t *testing.T) {
	named := regexp.MustCompile("(?:kubewasm/kubewasm/(?:blob|tree)/main/|(?:^|[\\s\"'`(]))(docs/[a-z/-]+\\.md|abi/SPEC\\.md|(?:RATIONALE|VERSIONING|CONTRIBUTING|SECURITY|CHANGELOG)\\.md)(?:#([a-z0-9-]+))?")
	found := 0
	for _, file := range tracked(t, "*.go", "*.yml", "*.yaml", "*.tmpl", "*.tpl", "*.txt", "*.proto", "*.rs", "*.ts", "*.mts", "*.h", "*.c", "*.toml", "*.rego", "*.sh", "*Makefile", "*Dockerfile", ".ci/*") {
		if strings.Contains(file, "/testdata/") || strings.HasPrefix(file, "cmd/kubewasm/templates/") || strings.HasSuffix(file, "_test.go") {
			continue // A template names files beside itself.
		}
		for _, m := range named.FindAllStringSubmatch(read(t, file), -1) {
			found++
			leads(t, file, m[1], m[2])
		}
	}
	if found < 50 {
		t.Errorf("only %d documents are named", found)
	}
}

// leads fails if a file, or a heading in it, does not exist.
func leads(t *testing.T, document, file, anchor string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		t.Errorf("%s links to %s, which does not exist", document, file)
	} else if anchor != "" && strings.HasSuffix(file, ".md") && !slices.Contains(anchors(read(t, file)), anchor) {
		t.Errorf("%s links to %s#%s, which has no such heading", document, file, anchor)
	}
}

// tracked returns the files that git knows, by patterns of git.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "--"}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// prose returns a document without its blocks of code.
func prose(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// TestUpstreamHasReproducers holds that each entry of docs/upstream.md names a test that reproduces it, or shows
// the guard at work. TestDocumentsNameTestsThatExist holds that the tests exist.
func TestUpstreamHasReproducers(t *testing.T) {
	entries := regexp.MustCompile(`(?m)^\*\*\d+\. `).Split(read(t, "docs/upstream.md"), -1)[1:]
	if len(entries) < 20 {
		t.Errorf("only %d entries", len(entries))
	}
	for _, entry := range entries {
		if !regexp.MustCompile("`(?:Test|Benchmark)\\w+`").MatchString(strings.Split(entry, "\n## ")[0]) && !strings.Contains(entry, "Reproducer: the one of that pull request") {
			t.Errorf("docs/upstream.md has no reproducer of: %.80s", entry)
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
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(text), -1) {
		list = append(list, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return list
}
