package admission

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kubewasm/kubewasm/internal/cut"
)

// Limits of the API server for warnings, by k8s.io/apiserver/pkg/endpoints/filters/warning.go:
// warnings with control characters are dropped, and beyond 4,096 runes in all every one is cut to
// 256.
const (
	warningRunes  = 256
	warningsRunes = 4096
)

// warnings collects warnings within the API server's limits: each once, cut at 256 runes, without
// control characters. If all of them would be too long, the last one gives the number of missing
// ones.
type warnings struct {
	texts []string
	// seen holds all earlier warnings, also those that did not fit.
	seen  map[string]bool
	runes int
	// dropped is the number of warnings that did not fit.
	dropped int
}

// reservedRunes is the room for the warning about missing warnings.
const reservedRunes = 64

func (w *warnings) add(text string) {
	text = oneLine(text)
	if utf8.RuneCountInString(text) > warningRunes {
		text = cut.Runes(text, warningRunes-1) + "…"
	}
	if text == "" || w.seen[text] {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	n := utf8.RuneCountInString(text)
	if w.runes+n > warningsRunes-reservedRunes {
		w.dropped++
		return
	}
	w.runes += n
	w.texts = append(w.texts, text)
}

func (w *warnings) list() []string {
	if w.dropped != 0 {
		return append(w.texts, fmt.Sprintf("%d more warnings are not shown", w.dropped))
	}
	return w.texts
}

// oneLine replaces each run of white space and control characters by a space.
func oneLine(text string) string {
	if strings.IndexFunc(text, unicode.IsControl) < 0 {
		return strings.TrimSpace(text)
	}
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || r == ' '
	}), " ")
}

// annotations collects audit annotations. The API server puts the webhook's name and "/" before
// each key and accepts the result if it is a qualified name, by
// k8s.io/apimachinery/pkg/api/validate/content.IsLabelKey: at most 63 letters, digits, '-', '_' and
// '.', with a letter or a digit at both ends.
type annotations map[string]string

const annotationKeyLength = 63

// add adds the annotations of a plugin. If two keys become equal, the first in order is kept.
func (a *annotations) add(plugin string, more map[string]string) {
	if len(more) == 0 {
		return
	}
	if *a == nil {
		*a = make(annotations, len(more))
	}
	for _, key := range slices.Sorted(maps.Keys(more)) {
		clean := annotationKey(plugin, key)
		if _, taken := (*a)[clean]; !taken {
			(*a)[clean] = more[key]
		}
	}
}

// annotationKey returns the key of a plugin's annotation. A key that is cut ends with a hash of the
// whole, so that long keys stay distinct.
func annotationKey(plugin, key string) string {
	whole := plugin + "." + key
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.':
			return r
		}
		return '_'
	}, whole)
	clean = strings.Trim(clean, "-_.")
	if len(clean) > annotationKeyLength {
		hash := fnv.New32a()
		hash.Write([]byte(whole)) // Never fails.
		clean = fmt.Sprintf("%s-%08x", clean[:annotationKeyLength-9], hash.Sum32())
	}
	if clean == "" {
		return "plugin" // Neither name nor key has a valid character.
	}
	return clean
}
