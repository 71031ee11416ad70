package standalone_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
)

// item is a pod of a list, with all that makes the end of a value hard to find.
func item(uid, annotation string) string {
	text, _ := json.Marshal(annotation)
	return fmt.Sprintf(`{"metadata": {"uid": %q, "annotations": {"a": %s}}, "other": [[], {}, -1.5e3, true, "\\", "}\"]", [[{"]": "{"}]]]}`, uid, text)
}

func list(items ...string) string {
	return `{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[` + strings.Join(items, " ,\n") + "]}\n"
}

// Only pods whose text differs from that of the last list are decoded.
func TestAPodThatDoesNotChangeIsDecodedOnce(t *testing.T) {
	a, b, c := item("a", `x"\`), item("b", "y"), item("c", "z")
	var l standalone.PodList
	for _, step := range []struct {
		name, text string
		uids       string
		decoded    int
		err        string
	}{
		{"the first list", list(a, b), "a b", 2, ""},
		{"the same again", list(a, b), "a b", 0, ""},
		{"another order", list(b, a), "b a", 0, ""},
		{"one that has come", list(b, a, c), "b a c", 1, ""},
		{"one that has changed", list(item("b", "other"), a, c), "b a c", 1, ""},
		{"one that ends", list(item("b", "other"), c), "b c", 0, ""},
		{"an answer that is cut off", list(a, c)[:len(list(a, c))-20], "", 1, "unexpected EOF"},
		{"the same as before it", list(item("b", "other"), c), "b c", 0, ""},
		{"the one that has ended, from a second answer", list(a), "a", 1, ""},
		{"one that has finished", list(a, `{"metadata": {"uid": "d"}, "status": {"phase": "Failed"}}`), "a", 1, ""},
		{"and again", list(a, `{"metadata": {"uid": "d"}, "status": {"phase": "Failed"}}`), "a", 0, ""},
		{"no pods", list(), "", 0, ""},
	} {
		pods, decoded, err := l.Read(strings.NewReader(step.text))
		var uids []string
		for _, pod := range pods {
			uids = append(uids, pod.UID)
		}
		if got := strings.Join(uids, " "); got != step.uids || decoded != step.decoded || (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: got %q with %d decoded, error %v; want %q with %d, error %q", step.name, got, decoded, err, step.uids, step.decoded, step.err)
		}
	}
}

// A list means the same however its bytes arrive, and a pod is the same from a second list.
func TestPodListsInPieces(t *testing.T) {
	text := list(item("a", strings.Repeat(`\"`, 40)), item("b", strings.Repeat("é", 40<<10)), item("c", ""))
	var whole standalone.PodList
	want, _, err := whole.Read(strings.NewReader(text))
	if err != nil || len(want) != 3 || want[0].Annotations["a"] != strings.Repeat(`\"`, 40) {
		t.Fatalf("got %d pods, error %v", len(want), err)
	}
	again, _, err := whole.Read(strings.NewReader(text))
	if diff := cmp.Diff(want, again); diff != "" || err != nil {
		t.Errorf("a second list: error %v\n%s", err, diff)
	}
	for name, pieces := range map[string]func(io.Reader) io.Reader{
		"bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "an end with the data": iotest.DataErrReader,
	} {
		var l standalone.PodList
		got, _, err := l.Read(pieces(strings.NewReader(text)))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v\n%s", name, err, diff)
		}
	}
	var l standalone.PodList
	lost := errors.New("connection lost")
	if _, _, err := l.Read(io.MultiReader(strings.NewReader(text[:100]), iotest.ErrReader(lost))); !errors.Is(err, lost) {
		t.Errorf("got error %v, want %v", err, lost)
	}
}

// What encoding/json does not take for a list is none.
func FuzzPodList(f *testing.F) {
	for _, text := range []string{
		list(), list(item("a", "b")), list(item("a", "b"), item("c", "")), "", "null", "5", `"x"`, "[]", "{}", `{"kind":"List","items":null}`, `{"kind":"List","items":[null,null]}`,
		`{"kind":"List","items":[{}}}`, `{"kind":"List","items":[{]]}`, `{"kind":"List" "items":[]}`, `{"kind":"List","items":[{} {}]}`, `{"kind":"List","items":[{},]}`,
		`{"kind":"List",}`, `{,"kind":"List"}`, `{"kind","List"}`, `{"kind":"List"}}`, `{"kind":"List","a":tru}`, `{"kind":"List","a":1 2}`, `{"kind":"List","a":"\u12"}`, `{"kind":"List","a":"` + "\x01" + `"}`,
		`{"kind":"List","items":[{"metadata":{"uid":"a\\"}}]}`, `{"kind":"List","items":[{"status":{"phase":"Failed"}}]}`, `{"kind":"List","items":nul}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var l standalone.PodList
		if _, _, err := l.Read(strings.NewReader(text)); err != nil {
			return // Quantities are bounded, so it may have reasons that encoding/json does not have.
		}
		// What follows the document is not looked at.
		if err := json.NewDecoder(strings.NewReader(text)).Decode(new(map[string]any)); err != nil {
			t.Fatalf("%q is no list for encoding/json: %v", text, err)
		}
	})
}
