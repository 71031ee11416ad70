package readme

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxRationale is the maximum number of words of RATIONALE.md and its parts, headings included.
const maxRationale = 10_000

// parts returns the paths of the parts of the rationale.
func parts(t *testing.T) (paths []string) {
	t.Helper()
	for _, document := range documents(t) {
		if strings.HasPrefix(document, "docs/rationale/") {
			paths = append(paths, document)
		}
	}
	if len(paths) == 0 {
		t.Fatal("docs/rationale is empty")
	}
	return paths
}

func TestRationaleIsShort(t *testing.T) {
	words := 0
	for _, document := range append(parts(t), "RATIONALE.md") {
		words += len(strings.Fields(read(t, document)))
	}
	if words > maxRationale {
		t.Errorf("RATIONALE.md and docs/rationale have %d words, want at most %d", words, maxRationale)
	}
}

// TestRationaleIndex checks that RATIONALE.md links to each section of each part. TestLinksLeadSomewhere
// checks the other direction.
func TestRationaleIndex(t *testing.T) {
	index := read(t, "RATIONALE.md")
	for _, part := range parts(t) {
		sections := regexp.MustCompile(`(?m)^## .*$`).FindAllString(read(t, part), -1)
		if len(sections) == 0 {
			t.Errorf("%s has no sections", part)
		}
		for _, link := range append([]string{part}, anchors(strings.Join(sections, "\n"))...) {
			if link != part {
				link = part + "#" + link
			}
			if !strings.Contains(index, "]("+link+")") {
				t.Errorf("RATIONALE.md has no link to %s", link)
			}
		}
	}
}

// TestRationaleEntries checks that each entry is a question, asked once, with an answer of at most
// six sentences.
func TestRationaleEntries(t *testing.T) {
	seen := map[string]string{}
	abbreviated := regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)") // A period in code or a link ends no sentence.
	sentence := regexp.MustCompile(`[.?!](\s|$)`)
	for _, part := range parts(t) {
		entries := regexp.MustCompile(`(?m)^### `).Split(read(t, part), -1)[1:]
		for _, entry := range entries {
			question, answer, _ := strings.Cut(entry, "\n")
			if section := strings.Index(answer, "\n## "); section >= 0 {
				answer = answer[:section]
			}
			if !strings.HasSuffix(question, "?") {
				t.Errorf("%s: %q is no question", part, question)
			}
			if other := seen[question]; other != "" {
				t.Errorf("%s asks %q, as %s does", part, question, other)
			}
			seen[question] = part
			if n := len(sentence.FindAllString(abbreviated.ReplaceAllString(answer, ""), -1)); n < 1 || n > 6 {
				t.Errorf("%s: the answer to %q has %d sentences, want 1 to 6", part, question, n)
			}
		}
	}
}

// TestReferencesToRationale checks references from all other files, such as comments: a question that is
// quoted beside the path of a part, or linked to by its anchor, must be in that part.
func TestReferencesToRationale(t *testing.T) {
	questions := map[string][]string{}
	headings := map[string][]string{}
	for _, part := range parts(t) {
		for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(read(t, part), -1) {
			questions[part] = append(questions[part], m[1])
		}
		headings[part] = anchors(read(t, part))
	}
	reference := regexp.MustCompile(`rationale/([a-z]+\.md)(?:#([\w-]+)|,? "([^"]*)")?`)
	quoted := regexp.MustCompile(`RATIONALE(\.md)?,? "`)
	comment := regexp.MustCompile(`\s*\n\s*(//|#|;;|\*)?\s*`) // The end of a line within a comment.
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "/rationale_test.go"):
			return nil
		case !slices.Contains([]string{".go", ".md", ".proto", ".rs", ".ts", ".h", ".c", ".sh", ".yaml", ".yml", ""}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(text, 0) >= 0 || !bytes.Contains(bytes.ToLower(text), []byte("rationale")) {
			return err
		}
		flat := comment.ReplaceAllString(string(text), " ")
		if quoted.MatchString(flat) {
			t.Errorf("%s quotes a question of RATIONALE.md, which has none: name the part in docs/rationale", path)
		}
		for _, m := range reference.FindAllStringSubmatch(flat, -1) {
			part := "docs/rationale/" + m[1]
			found++
			switch {
			case headings[part] == nil:
				t.Errorf("%s names %s, which does not exist", path, part)
			case m[2] != "" && !slices.Contains(headings[part], m[2]):
				t.Errorf("%s links to %s#%s, which has no such heading", path, part, m[2])
			case m[3] != "" && !slices.Contains(questions[part], m[3]):
				t.Errorf("%s quotes %q, which %s does not ask", path, m[3], part)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d references, error %v", found, err)
	}
}
