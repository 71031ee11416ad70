package main

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/testkit/operate"
)

const root = "../../.."

// TestNavigation holds that docs/README.md, the order of the site, leads to each document of docs, and that
// each file that it names is a page.
func TestNavigation(t *testing.T) {
	s, err := read(root, "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, group := range s.sidebar() {
		if len(group.Items) == 0 {
			t.Errorf("%s is empty", group.Text)
		}
		for _, entry := range group.Items {
			if !strings.HasPrefix(entry.Link, "/") {
				t.Errorf("%s leads to %s, which is no page", entry.Text, entry.Link)
			}
			listed = append(listed, strings.TrimPrefix(entry.Link, "/"))
		}
	}
	for _, p := range s.pages {
		index := p.path == "index" || p.path == "guides"
		inDocs := filepath.ToSlash(filepath.Dir(p.source)) == "docs" || p.source == ""
		if inDocs && !index && p.parent == "" && !slices.Contains(listed, p.path) {
			t.Errorf("docs/README.md has no link to the page %s", p.path)
		}
		if strings.Contains(strings.Join(strings.Split(p.text, "`"), ""), "{{ ") && p.source == "" {
			t.Errorf("%s has an expression of Vue", p.path)
		}
	}
}

func TestLinks(t *testing.T) {
	s := &pages{root: root, ref: "v0.1.0", sections: map[string]string{}, generated: map[string]string{"docs/schemas/hook.json": "reference/hook"}}
	s.add("README.md", "# kubewasm\n")
	s.add("docs/rust.md", "# Rust\n")
	s.add("docs/long.md", "# Long\n\n## First part\n\n### Deep\n\n```\n## code\n```\n\n## Second\n"+strings.Repeat("word ", splitAt)+"\n")
	for _, tc := range []struct{ name, document, link, want string }{
		{"a page beside it", "docs/long.md", "rust.md#size", "/rust.md#size"},
		{"the first page", "docs/long.md", "../README.md", "/index.md"},
		{"a section that is a page", "README.md", "docs/long.md#first-part", "/long/first-part.md"},
		{"a heading in a section", "README.md", "docs/long.md#deep", "/long/first-part.md#deep"},
		{"a heading of the same document", "docs/long.md", "#second", "/long/second.md"},
		{"a generated page", "README.md", "docs/schemas/hook.json", "/reference/hook.md"},
		{"a picture", "docs/rust.md", "images/audit.png", "/images/audit.png"},
		{"a file", "README.md", "LICENSE", repository + "/blob/v0.1.0/LICENSE"},
		{"a directory", "docs/rust.md", "../guest", repository + "/tree/v0.1.0/guest"},
		{"the branch in the forge", "docs/rust.md", repository + "/blob/main/LICENSE", repository + "/blob/v0.1.0/LICENSE"},
		{"another server", "docs/rust.md", "https://go.dev/#x", "https://go.dev/#x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := s.target(tc.document, tc.link); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	var paths []string
	for _, p := range s.pages {
		paths = append(paths, p.path)
	}
	if diff := cmp.Diff([]string{"index", "rust", "long", "long/first-part", "long/second"}, paths); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if got, want := s.pages[3].text, "# First part\n\n## Deep\n\n```\n## code\n```\n\n"; got != want {
		t.Errorf("the section is %q, want %q", got, want)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"index.html":   `<a href="/v1/a/b.html#here">x</a> <a href="./a/b.html">x</a> <a href="/v1/">x</a> <a href="https://go.dev">x</a>`,
		"a/b.html":     `<h1 id="here">x</h1> <a href="../index.html">x</a> <a href="#here">x</a>`,
		"broken.html":  `<a href="/v1/none.html">x</a> <a href="/v1/a/b.html#there">x</a> <a class="y" href="#top">x</a>`,
		"fetches.html": `<img src="https://example.com/x.png">`,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, err := range check(dir, "/v1/") {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	want := []string{
		"broken.html links to #top, which has no such heading",
		"broken.html links to /v1/a/b.html#there, which has no such heading",
		"broken.html links to /v1/none.html, which does not exist",
		`fetches.html fetches from another server: <img src="https://`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestInABrowser opens the site that make site built in KUBEWASM_SITE: every page at the width of a phone, some
// at that of a desktop, and the search. Pictures go to KUBEWASM_SITE_PICTURES.
func TestInABrowser(t *testing.T) {
	dir := os.Getenv("KUBEWASM_SITE")
	if dir == "" {
		t.Skip("KUBEWASM_SITE is not set: make site sets it")
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	browser := operate.NewBrowser(t)
	look := func(name string, width, height int, script string) *operate.Page {
		t.Helper()
		page := browser.Run(server.URL+"/"+name, width, height, script)
		if page.Width > float64(width) {
			t.Errorf("%s is %v pixels wide in a window of %d", name, page.Width, width)
		}
		if pictures := os.Getenv("KUBEWASM_SITE_PICTURES"); pictures != "" {
			file := strings.ReplaceAll(strings.TrimSuffix(name, ".html"), "/", "-")
			if script != "" {
				file += "-search"
			}
			for _, err := range []error{os.MkdirAll(pictures, 0o755), os.WriteFile(filepath.Join(pictures, file+"-"+map[bool]string{true: "phone", false: "desktop"}[width < 600]+".png"), page.PNG, 0o644)} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		return page
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(name, ".html") {
			look(name, 390, 844, "")
			if slices.Contains([]string{"index.html", "metrics.html", "operating/limits.html", "reference/hook.html"}, name) {
				look(name, 1280, 900, "")
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const search = `(async () => {
		const until = async f => { for (let i = 0; i < 500; i++) { const v = f(); if (v) return v; await new Promise(r => setTimeout(r, 20)) } throw new Error(f) }
		const input = await until(() => { // The button does nothing before its script runs.
			const found = document.querySelector('.search-input')
			if (!found) document.querySelector('.VPNavBarSearch button').click()
			return found
		})
		input.value = 'circuit breaker'
		input.dispatchEvent(new Event('input', {bubbles: true}))
		await until(() => document.querySelector('.result'))
	})()`
	for width, height := range map[int]int{390: 844, 1280: 900} {
		if page := look("guides.html", width, height, search); len(page.Errors) != 0 {
			t.Errorf("%d: %s", width, page.Errors)
		}
	}
}
