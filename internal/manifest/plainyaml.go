package manifest

import (
	"bytes"
	"strings"
)

// plainYAML returns a document of YAML in JSON if it is a mapping as kubectl and people write it,
// and nil for any other: mappings and lists in lines of their own, in ASCII, with scalars that are
// surely texts, whole numbers, true, false or null in each version of YAML. The reader of YAML takes
// six times as long for these. FuzzShortcuts compares both.
func plainYAML(document []byte) []byte {
	p := plainParser{out: make([]byte, 0, len(document))}
	marked := false
	for text := range bytes.Lines(document) {
		text = bytes.TrimSuffix(text, []byte("\n"))
		line := bytes.TrimLeft(text, " ")
		switch {
		case len(line) == 0 || line[0] == '#' && printable(line):
			continue
		case len(p.lines) == 0 && !marked && string(text) == "---":
			marked = true
			continue
		case line[len(line)-1] == ' ' || !printable(line):
			return nil
		}
		p.lines = append(p.lines, plainLine{len(text) - len(line), string(line)})
	}
	if len(p.lines) == 0 || p.lines[0].indent != 0 || !p.mapping(0, 0) || p.next != len(p.lines) {
		return nil
	}
	return p.out
}

// printable reports whether a text has nothing but characters of ASCII that are printed.
func printable(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// plainLine is a line without its indentation.
type plainLine struct {
	indent int
	text   string
}

// plainParser writes JSON. Its methods return false for what is not plain.
type plainParser struct {
	lines []plainLine
	next  int
	out   []byte
}

// follows returns the indentation of the next line, -1 at the end, and whether it is an item of a
// list.
func (p *plainParser) follows() (indent int, item bool) {
	if p.next == len(p.lines) {
		return -1, false
	}
	l := p.lines[p.next]
	return l.indent, strings.HasPrefix(l.text, "- ")
}

// block writes the mapping or the list that begins with the next line.
func (p *plainParser) block(depth int) bool {
	indent, item := p.follows()
	if item {
		return p.list(indent, depth)
	}
	return p.mapping(indent, depth)
}

// maxPlainKeys bounds the keys of a mapping, which are compared with one another.
const maxPlainKeys = 64

func (p *plainParser) mapping(indent, depth int) bool {
	var room [16]string
	keys := room[:0]
	p.out = append(p.out, '{')
	for {
		at, item := p.follows()
		if at < indent || at == indent && item {
			break
		}
		key, value, ok := plainKey(p.lines[p.next].text)
		if at != indent || !ok || len(keys) == maxPlainKeys || depth > maxDepth {
			return false
		}
		for _, k := range keys {
			if k == key {
				return false
			}
		}
		if p.next++; len(keys) > 0 {
			p.out = append(p.out, ',')
		}
		keys = append(keys, key)
		p.out = append(append(append(p.out, '"'), key...), '"', ':')
		at, item = p.follows()
		switch {
		case value != "":
			if at > indent || !p.scalar(value) { // A scalar that goes on in the next line.
				return false
			}
		case at > indent:
			if !p.block(depth + 1) {
				return false
			}
		case at == indent && item:
			if !p.list(indent, depth+1) {
				return false
			}
		default:
			p.out = append(p.out, "null"...)
		}
	}
	p.out = append(p.out, '}')
	return true
}

func (p *plainParser) list(indent, depth int) bool {
	p.out = append(p.out, '[')
	for n := 0; ; n++ {
		at, item := p.follows()
		if at < indent || at == indent && !item {
			break
		}
		if at != indent || depth > maxDepth {
			return false
		}
		if n > 0 {
			p.out = append(p.out, ',')
		}
		line := &p.lines[p.next]
		text := line.text[2:]
		if _, _, ok := plainKey(text); ok { // The mapping begins in the line of its item.
			*line = plainLine{indent + 2, text}
			if !p.mapping(indent+2, depth+1) {
				return false
			}
			continue
		}
		p.next++
		if at, _ = p.follows(); at > indent || !p.scalar(text) {
			return false
		}
	}
	p.out = append(p.out, ']')
	return true
}

// plainKey returns the key of a line and its value, which is empty if it is in lines below.
func plainKey(line string) (key, value string, ok bool) {
	n := 0
	for n < len(line) && (letter(line[n]) || digit(line[n]) || strings.IndexByte("_./-", line[n]) >= 0) {
		n++
	}
	if n == 0 || n > 128 || n == len(line) || line[n] != ':' || !letter(line[0]) || special(line[:n]) {
		return "", "", false
	}
	key, rest := line[:n], line[n+1:]
	if rest == "" {
		return key, "", true
	}
	value = strings.TrimLeft(rest, " ")
	return key, value, rest[0] == ' ' && value != ""
}

// scalar writes a scalar.
func (p *plainParser) scalar(text string) bool {
	switch first := text[0]; {
	case text == "{}" || text == "[]" || text == "true" || text == "false" || text == "null":
		p.out = append(p.out, text...)
		return true
	case first == '"':
		if len(text) == 1 || strings.IndexAny(text[1:], `"\`) != len(text)-2 || text[len(text)-1] != '"' {
			return false
		}
		p.out = append(p.out, text...)
		return true
	case first == '\'':
		if len(text) == 1 || strings.IndexByte(text[1:], '\'') != len(text)-2 {
			return false
		}
		text = text[1 : len(text)-1]
		if strings.ContainsAny(text, `"\`) {
			return false
		}
	case digit(first):
		digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
		if first == '0' && len(text) > 1 || digits > 15 {
			return false
		}
		switch text[digits:] {
		case "":
			p.out = append(p.out, text...)
			return true
		case "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti": // A quantity.
		default:
			return false
		}
	default:
		if !letter(first) && first != '/' && (len(text) < 3 || text[:2] != "--" || !letter(text[2])) || special(text) {
			return false
		}
		for i := range len(text) {
			c := text[i]
			if c == ':' && (i+1 == len(text) || text[i+1] == ' ') || !letter(c) && !digit(c) && strings.IndexByte(" _./:@=,+-%()$", c) < 0 {
				return false
			}
		}
	}
	p.out = append(append(append(p.out, '"'), text...), '"')
	return true
}

// special reports whether a text is a truth value or nothing in some version of YAML.
func special(text string) bool {
	if len(text) > len("false") {
		return false
	}
	switch strings.ToLower(text) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func digit(c byte) bool { return '0' <= c && c <= '9' }
