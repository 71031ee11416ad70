package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const repository = "https://github.com/kubewasm/kubewasm"

// splitAt is the number of words above which a document is a page for each of its sections.
const splitAt = 6000

// page is a page of the site.
type page struct {
	source string // The document in the repository, or "" if the page is generated.
	path   string // Relative to the root of the site, without extension.
	title  string
	text   string
	parent string // The path of the page of which this is a section, or "".
}

// pages are all pages, and where the links of documents lead.
type pages struct {
	root, ref string
	pages     []page
	sections  map[string]string // From "document#anchor" to the path of the page of that section.
	generated map[string]string // From a file of the repository to the path of the page that is generated from it.
}

// read reads the documents that git knows in root, and generates the reference.
func read(root, ref string) (*pages, error) {
	s := &pages{root: root, ref: ref, sections: map[string]string{}, generated: map[string]string{"cmd/kubewasm": "reference/kubewasm"}}
	list := exec.Command("git", "ls-files", "*.md")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list documents: %w", err)
	}
	for _, name := range strings.Fields(string(out)) {
		if strings.Contains(name, "testdata/") || strings.HasPrefix(name, ".github/pull_request") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		s.add(name, string(text))
	}
	return s, s.reference()
}

// pathOf returns the path of the page of a document.
func pathOf(document string) string {
	p := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(document, "docs/"), ".github/"), ".md")
	switch {
	case document == "README.md":
		return "index"
	case document == "docs/README.md":
		return "guides"
	}
	return strings.TrimSuffix(p, "/README")
}

var (
	comment = regexp.MustCompile(`(?s)<!--.*?-->\n*`)
	badges  = regexp.MustCompile(`(?m)^\[!\[.*\n\n?`) // Pictures of other servers.
)

// add adds the page of a document, or its sections if it is long.
func (s *pages) add(document, text string) {
	text = badges.ReplaceAllString(comment.ReplaceAllString(text, ""), "")
	whole := page{source: document, path: pathOf(document), title: titleOf(text), text: text}
	if len(strings.Fields(text)) <= splitAt || document == "CHANGELOG.md" {
		s.pages = append(s.pages, whole)
		return
	}
	var parts []page
	index := &strings.Builder{}
	current := index
	buffers := []*strings.Builder{}
	for line := range proseLines(text) {
		if heading, ok := strings.CutPrefix(line.text, "## "); ok && !line.code {
			heading = strings.TrimSpace(heading)
			parts = append(parts, page{source: document, path: whole.path + "/" + anchor(heading), title: heading, parent: whole.path})
			current = new(strings.Builder)
			buffers = append(buffers, current)
		}
		if strings.HasPrefix(line.text, "#") && !line.code {
			if len(parts) > 0 {
				s.sections[document+"#"+anchor(strings.TrimLeft(strings.TrimSpace(line.text), "# "))] = parts[len(parts)-1].path
				line.text = strings.TrimPrefix(line.text, "#")
			}
		}
		current.WriteString(line.text)
	}
	for i := range parts {
		parts[i].text = buffers[i].String()
		fmt.Fprintf(index, "- [%s](#%s)\n", parts[i].title, path.Base(parts[i].path))
	}
	whole.text = index.String()
	s.pages = append(append(s.pages, whole), parts...)
}

// titleOf returns the first heading of a text.
func titleOf(text string) string {
	for line := range proseLines(text) {
		if title, ok := strings.CutPrefix(line.text, "# "); ok && !line.code {
			return strings.TrimSpace(title)
		}
	}
	return ""
}

// line is a line of a document. Code reports whether it is part of a fenced block.
type line struct {
	text string
	code bool
}

// proseLines yields the lines of a document.
func proseLines(text string) func(yield func(line) bool) {
	return func(yield func(line) bool) {
		fenced := false
		for l := range strings.Lines(text) {
			fence := strings.HasPrefix(strings.TrimLeft(l, " "), "```")
			if !yield(line{l, fenced || fence}) {
				return
			}
			fenced = fenced != fence
		}
	}
}

var dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor returns the anchor that the forge makes of a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// linked returns the text of a page with the links of its document changed to pages of the site, or to the
// forge where they lead to files.
func (s *pages) linked(p page) string {
	if p.source == "" {
		return p.text
	}
	var out strings.Builder
	for l := range proseLines(p.text) {
		if !l.code {
			l.text = link.ReplaceAllStringFunc(l.text, func(m string) string {
				return "](" + s.target(p.source, m[2:len(m)-1]) + ")"
			})
		}
		out.WriteString(l.text)
	}
	return out.String()
}

// target returns the target on the site of a link in a document.
func (s *pages) target(document, to string) string {
	if strings.Contains(to, ":") {
		for _, view := range []string{"/blob/main/", "/tree/main/"} {
			if file, ok := strings.CutPrefix(to, repository+view); ok {
				return repository + strings.Replace(view, "main", s.ref, 1) + file
			}
		}
		return to
	}
	file, fragment, _ := strings.Cut(to, "#")
	if file == "" {
		file = document
	} else {
		file = path.Join(path.Dir(document), file)
	}
	if fragment != "" {
		fragment = "#" + fragment
	}
	if section, ok := s.sections[file+fragment]; ok {
		if "#"+path.Base(section) == fragment {
			fragment = "" // The section is the page.
		}
		return "/" + section + ".md" + fragment
	}
	if generated, ok := s.generated[file]; ok {
		return "/" + generated + ".md"
	}
	if slices.ContainsFunc(s.pages, func(p page) bool { return p.source == file }) {
		return "/" + pathOf(file) + ".md" + fragment
	}
	if strings.HasPrefix(file, "docs/images/") {
		return "/" + strings.TrimPrefix(file, "docs/")
	}
	view := "/blob/"
	if info, err := os.Stat(filepath.Join(s.root, file)); err == nil && info.IsDir() {
		view = "/tree/"
	}
	return repository + view + s.ref + "/" + file + fragment
}

// item is an entry of the sidebar of VitePress.
type item struct {
	Text      string `json:"text"`
	Link      string `json:"link,omitempty"`
	Collapsed *bool  `json:"collapsed,omitempty"`
	Items     []item `json:"items,omitempty"`
}

// sidebar returns the order of pages: the sections of docs/README.md, and the links of their lists.
func (s *pages) sidebar() (groups []item) {
	closed := true
	for _, p := range s.pages {
		if p.source != "docs/README.md" {
			continue
		}
		for l := range strings.Lines(p.text) {
			if heading, ok := strings.CutPrefix(l, "## "); ok {
				groups = append(groups, item{Text: strings.TrimSpace(heading)})
			}
			m := regexp.MustCompile(`^- \[([^\]]+)\]\(([^)]+)\)`).FindStringSubmatch(l)
			if m == nil || len(groups) == 0 {
				continue
			}
			entry := item{Text: m[1], Link: strings.TrimSuffix(s.target(p.source, m[2]), ".md")}
			for _, part := range s.pages {
				if part.parent != "" && "/"+part.parent == entry.Link {
					entry.Items, entry.Collapsed = append(entry.Items, item{Text: part.title, Link: "/" + part.path}), &closed
				}
			}
			group := &groups[len(groups)-1]
			group.Items = append(group.Items, entry)
		}
	}
	return groups
}

// write writes the pages, their pictures and the navigation into the new directory dir.
func (s *pages) write(dir string, versions []string, site string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, p := range s.pages {
		file := filepath.Join(dir, p.path+".md")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(s.linked(p)), 0o644); err != nil {
			return err
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "public/images"), os.DirFS(filepath.Join(s.root, "docs/images"))); err != nil {
		return err
	}
	navigation, err := json.Marshal(map[string]any{"sidebar": s.sidebar(), "version": s.ref, "versions": versions, "site": site})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "navigation.json"), navigation, 0o644)
}
