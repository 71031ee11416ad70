package layout

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ownLifetimes are the safe functions whose results have a lifetime of the caller's choice, with
// the reason why that is safe.
var ownLifetimes = map[string]string{
	"guest/rust/src/call.rs for_test":      "exists natively only, where nothing ends",
	"guest/rust/src/json.rs name":          "names a kind by a literal",
	"guest/rust/src/service.rs name":       "names a code by a literal",
	"guest/rust/src/admission/pod.rs list": "names a field by a literal",
	"guest/rust/src/value.rs default":      "is empty",
	"guest/rust/src/view.rs default":       "is empty",
}

var (
	rustComment  = regexp.MustCompile(`(?m)//.*$|"(\\.|[^"\\])*"|b?'(\\.[^']*|[^'\\])'`)
	rustLifetime = regexp.MustCompile(`'[a-z_]\w*`)
	rustFn       = regexp.MustCompile(`\bfn\s+(\$?\w+)`)
	rustImpl     = regexp.MustCompile(`(?m)^\s*(?:unsafe )?(?:impl|pub trait|trait)\b([^{;]*)\{`)
	rustWord     = regexp.MustCompile(`\b[A-Z]\w*\b`)
	rustBound    = regexp.MustCompile(`\b([A-Z]\w*)\s*:\s*([^,>]*(?:<[^>]*>)?[^,>]*)`)
	rustGiven    = regexp.MustCompile(`\bFn(?:Once|Mut)?\([^)]*'static`)
)

// closing returns the position after the bracket that closes the one that begins text.
func closing(text string, opens, closes byte) int {
	depth := 0
	for i := range len(text) {
		switch {
		case text[i] == opens:
			depth++
		case text[i] == closes && (i == 0 || closes != '>' || text[i-1] != '-'):
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// unboundLifetimes returns the names of the safe functions in a file of Rust whose results live as
// long as the caller likes: a lifetime of the result that no parameter has, and 'static.
func unboundLifetimes(source string) (names []string) {
	source = rustComment.ReplaceAllString(source, "")
	type block struct {
		from, to int
		head     string
	}
	var blocks []block
	for _, at := range rustImpl.FindAllStringSubmatchIndex(source, -1) {
		blocks = append(blocks, block{at[1] - 1, at[1] - 1 + closing(source[at[1]-1:], '{', '}'), source[at[2]:at[3]]})
	}
	for _, at := range rustFn.FindAllStringSubmatchIndex(source, -1) {
		before := source[:at[0]]
		before = before[strings.LastIndexAny(before, ";{}])")+1:]
		if strings.Contains(before, "unsafe") {
			continue
		}
		name, rest := source[at[2]:at[3]], source[at[1]:]
		generics := ""
		if strings.HasPrefix(rest, "<") {
			n := closing(rest, '<', '>')
			generics, rest = rest[:n], rest[n:]
		}
		if !strings.HasPrefix(rest, "(") {
			continue // The macros that write functions, and types of functions.
		}
		n := closing(rest, '(', ')')
		parameters, rest := rest[:n], rest[n:]
		result := ""
		if end := strings.IndexAny(rest, "{;"); end >= 0 {
			result, _, _ = strings.Cut(rest[:end], " where ")
		}
		head := ""
		for _, b := range blocks {
			if b.from < at[0] && at[0] < b.to {
				head = b.head
			}
		}
		// Lifetimes in the bounds of a parameter's type are those of the type.
		bounds := map[string]string{}
		for _, b := range rustBound.FindAllStringSubmatch(head+" "+generics, -1) {
			bounds[b[1]] += " " + b[2]
		}
		all := func(text string) []string {
			for _, word := range rustWord.FindAllString(text, -1) {
				text += bounds[word]
			}
			return rustLifetime.FindAllString(text, -1)
		}
		have := all(parameters)
		if regexp.MustCompile(`^\(\s*(&\s*('\w+\s+)?)?(mut )?self\b`).MatchString(parameters) {
			have = append(have, all(head)...)
		}
		// rustc knows of what an elided lifetime is, unless it is that of a type.
		if result = strings.ReplaceAll(result, "'_", ""); strings.Contains(result, "Self") {
			result += " " + head
		}
		wrong := rustGiven.MatchString(parameters)
		for _, l := range all(result) {
			wrong = wrong || l == "'static" || !slices.Contains(have, l)
		}
		if wrong {
			names = append(names, name)
		}
	}
	return names
}

// TestNoSafeFunctionOfRustHasAnUnboundLifetime holds that what the SDK of Rust, the code that gen
// writes and the guests return is of something that the caller has for the call alone. What the
// SDK has read is overwritten by the next call.
func TestNoSafeFunctionOfRustHasAnUnboundLifetime(t *testing.T) {
	unused := map[string]bool{}
	for name := range ownLifetimes {
		unused[name] = true
	}
	functions := 0
	files := shipped(t, "*.rs", "*.rs.tmpl")
	for _, file := range slices.Sorted(maps.Keys(files)) {
		text := files[file]
		functions += len(rustFn.FindAll(text, -1))
		for _, name := range unboundLifetimes(string(text)) {
			id := file + " " + name
			if delete(unused, id); ownLifetimes[id] == "" {
				t.Errorf("%s: fn %s is safe, and its result has a lifetime of the caller's choice: take the call, or make it unsafe", file, name)
			}
		}
	}
	for name := range unused {
		t.Errorf("%s has no lifetime of its own: remove it from ownLifetimes", name)
	}
	if functions < 2000 {
		t.Errorf("only %d functions were found", functions)
	}
}

func TestUnboundLifetimesAreFound(t *testing.T) {
	const source = `
// fn in_comment<'a>() -> &'a str {}
pub fn chosen<'a>() -> &'a str { "fn in_text<'a>() -> &'a str" }
pub fn bound<'a>(of: &'a [u8]) -> &'a str { "" }
pub fn elided(of: &[u8]) -> Option<Field<'_>> { None }
pub unsafe fn promised<'a>() -> &'a str { "" }
pub(crate) fn kept() -> Option<&'static str> { None }
pub fn of_call<'a>(call: impl Into<Call<'a>>, name: &str) -> Option<Pod<'a>> { None }
pub fn generic<'a, T: Message<'a>>(id: u64) -> T { todo() }
pub fn generic_bound<'a, T: Message<'a>>(call: Call<'a>, id: u64) -> T { todo() }
pub fn given(f: impl FnOnce(&[u8], Names<'static>) -> i32) -> i32 { 0 }
pub fn whatever<'a, P: 'a>() -> (&'a P, u32) { todo() }
impl<'a> Request<'a> {
    pub fn method(&self) -> &'a str { "" }
    pub fn by_value(self) -> View<'a> { self.0 }
    pub fn made(id: u64) -> Self { Request(id) }
    pub fn made_of(call: Call<'a>) -> Self { Request(0) }
    pub fn other<'b>(&self) -> &'b str { "" }
}
impl<'a, M: Message<'a>> From<M> for Call<'a> {
    fn from(message: M) -> Self { todo() }
}
impl Default for View<'_> {
    fn default() -> Self { View }
}
`
	want := []string{"chosen", "kept", "generic", "given", "whatever", "made", "other", "default"}
	if diff := cmp.Diff(want, unboundLifetimes(source)); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
}
