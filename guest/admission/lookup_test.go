//go:build !wasip1

package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// pages is a source of ConfigMaps, three on a page, whose labels have more and more entries.
type pages int

func (n pages) object(i int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"c%d","labels":{%s"n":"%d\u0061"}}}`,
		i, strings.Repeat(`"pad":"x",`, i%7), i)
}

func (n pages) GetObject(question string) []byte {
	var i int
	if _, err := fmt.Sscanf(question, "v1/configmaps\x00shop\x00c%d", &i); err != nil || i >= int(n) {
		return nil
	}
	return n.object(i)
}

func (n pages) ListObjects(question string) (b []byte) {
	first := 0
	after := question[strings.LastIndexByte(question, 0)+1:]
	if _, err := fmt.Sscanf(after, "shop/c%d", &first); err == nil {
		first++
	}
	for i := first; i < int(n); i++ {
		if i == first+3 {
			b = protowire.AppendTag(b, 2, protowire.BytesType)
			return protowire.AppendString(b, fmt.Sprintf("shop/c%d", i-1))
		}
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendBytes(b, n.object(i))
	}
	return b
}

const configMaps = "v1/configmaps"

func TestList(t *testing.T) {
	defer nativehost.UseLookups(pages(10))()
	var names, labels []string
	for c := range admission.List(core.ConfigMapFromJSON, configMaps, "shop", "") {
		names, labels = append(names, c.Metadata().Name()), append(labels, c.Metadata().Labels().Get("n"))
	}
	for i := range 10 {
		// Strings are kept although the views are done with.
		if names[i] != fmt.Sprint("c", i) || labels[i] != fmt.Sprint(i, "a") {
			t.Errorf("object %d is %s %s", i, names[i], labels[i])
		}
	}
	if len(names) != 10 {
		t.Errorf("there are %q", names)
	}
	if c, ok := admission.Get(core.ConfigMapFromJSON, configMaps, "shop", "c7"); !ok || c.Metadata().Name() != "c7" {
		t.Error("one is not there")
	}
	if _, ok := admission.Get(core.ConfigMapFromJSON, configMaps, "shop", "c10"); ok {
		t.Error("one is there that is not")
	}
}

// TestViewsPanicAfterTheirTurn holds that a view of an object before panics and does not say
// what the one after it has, and that lists within lists do not disturb one another.
func TestViewsPanicAfterTheirTurn(t *testing.T) {
	defer nativehost.UseLookups(pages(4))()
	var first core.ConfigMap
	panics := 0
	for c := range admission.List(core.ConfigMapFromJSON, configMaps, "", "") {
		if name := c.Metadata().Name(); name == "c0" {
			first = c
			continue
		}
		func() {
			defer func() {
				if recover() != nil {
					panics++
				}
			}()
			if got := first.Metadata().Labels().Get("n"); got != "0a" {
				t.Errorf("the first object has the label %q", got)
			}
		}()
	}
	if panics != 3 {
		t.Errorf("%d reads of a view that is done with panic, want 3", panics)
	}

	var pairs []string
	for outer := range admission.List(core.ConfigMapFromJSON, configMaps, "", "") {
		for inner := range admission.List(core.ConfigMapFromJSON, configMaps, "", "") {
			if inner.Metadata().Name() == "c2" {
				break
			}
			pairs = append(pairs, outer.Metadata().Name()+inner.Metadata().Labels().Get("n"))
		}
		pairs = append(pairs, outer.Metadata().Labels().Get("n"))
	}
	if got := strings.Join(pairs, " "); got != "c00a c01a 0a c10a c11a 1a c20a c21a 2a c30a c31a 3a" {
		t.Errorf("lists within a list: %s", got)
	}

	// What is viewed twice is viewed apart, and what keeps bytes keeps them.
	both := func(b []byte) [2]meta.ObjectMeta {
		return [2]meta.ObjectMeta{core.ConfigMapFromJSON(b).Metadata(), core.SecretFromJSON(b).Metadata()}
	}
	for pair := range admission.List(both, configMaps, "", "") {
		if pair[0].Name() != pair[1].Name() || pair[0].Name() == "" {
			t.Errorf("two views of one object have the names %s and %s", pair[0].Name(), pair[1].Name())
		}
	}
	all := slices.Collect(admission.List(func(b []byte) []byte { return b }, configMaps, "", ""))
	for i, b := range all {
		if got := core.ConfigMapFromJSON(b).Metadata().Name(); got != fmt.Sprint("c", i) {
			t.Errorf("object %d is %s afterwards", i, got)
		}
	}
}
