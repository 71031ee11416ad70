package lookup_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

type object struct {
	namespace, name string
	labels          map[string]string
	size            int
}

func (o *object) GetNamespace() string         { return o.namespace }
func (o *object) GetName() string              { return o.name }
func (o *object) GetLabels() map[string]string { return o.labels }

// encode is the name of an object, padded to its size.
func encode(o *object) ([]byte, error) {
	b := []byte(o.namespace + "/" + o.name + " ")
	return append(b, make([]byte, max(o.size-len(b), 0))...), nil
}

// parse returns the names of the objects in an answer, and what the next page begins with.
func parse(t testing.TB, b []byte) (names []string, next string) {
	t.Helper()
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind != protowire.BytesType {
			t.Fatalf("the answer is malformed at %.20q", b)
		}
		value, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			t.Fatalf("the answer is malformed at %.20q", b)
		}
		switch b = b[n+m:]; number {
		case 1:
			name, _, _ := strings.Cut(string(value), " ")
			names = append(names, name)
		case 2:
			next = string(value)
		default:
			t.Fatalf("the answer has the field %d", number)
		}
	}
	return names, next
}

// some returns objects of three namespaces. Every second object has the label
// a.
func some(size int) (list []*object) {
	for _, namespace := range []string{"", "a", "b"} {
		for i := range 4 {
			list = append(list, &object{namespace, fmt.Sprint(i), map[string]string{"even": fmt.Sprint(i%2 == 0)}, size})
		}
	}
	return list
}

func TestListsAreCutIntoPages(t *testing.T) {
	for name, test := range map[string]struct {
		size     int
		question string // Up to the selector.
		want     []string
	}{
		"small objects are one page":   {10, "\x00", []string{"/0 /1 /2 /3 a/0 a/1 a/2 a/3 b/0 b/1 b/2 b/3"}},
		"two thirds of a page":         {50 << 10, "a\x00", []string{"a/0 a/1", "a/2 a/3"}},
		"a page of each":               {1 << 20, "b\x00", []string{"b/0", "b/1", "b/2", "b/3"}},
		"those of a selector":          {50 << 10, "\x00even=true", []string{"/0 /2", "a/0 a/2", "b/0 b/2"}},
		"those of a namespace, too":    {80 << 10, "a\x00even=true", []string{"a/0", "a/2"}},
		"a namespace that has nothing": {10, "c\x00", []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for after := ""; ; {
				q, err := lookup.ParseList("v1/pods\x00"+test.question+"\x00"+after, func(int64) {})
				if err != nil {
					t.Fatal(err)
				}
				b, err := lookup.Append(nil, q, some(test.size), encode, func(int64) {}, 2<<20)
				if err != nil {
					t.Fatal(err)
				}
				names, next := parse(t, b)
				got = append(got, strings.Join(names, " "))
				if after = next; next == "" {
					break
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pages (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPagesContinueAfterADeletedObject holds that a page can begin after an object that is
// gone.
func TestPagesContinueAfterADeletedObject(t *testing.T) {
	q, err := lookup.ParseList("v1/pods\x00\x00\x00a/1", func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	list := some(10)
	list = append(list[:5], list[6:]...) // Without a/1.
	b, err := lookup.Append(nil, q, list, encode, func(int64) {}, math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := parse(t, b); strings.Join(names, " ") != "a/2 a/3 b/0 b/1 b/2 b/3" {
		t.Errorf("behind a/1 are %v", names)
	}
}

// TestLookUpsChargeFuel holds that the guest is charged for the host's work before it is done,
// with or without an answer.
func TestLookUpsChargeFuel(t *testing.T) {
	var list []*object
	for i := range 10_000 {
		list = append(list, &object{namespace: "a", name: fmt.Sprintf("%05d", i), size: 100})
	}
	for name, test := range map[string]struct {
		question string
		least    int64
	}{
		"a selector that nothing fits":           {"v1/pods\x00\x00b=c", 200 * 10_000},
		"a selector of many requirements":        {"v1/pods\x00\x00" + strings.Repeat("!a,", 99) + "!a", 100 * 100 * 10_000},
		"a whole list":                           {"v1/pods\x00", 100*10_000 + 100*10_000/4},
		"a selector that is long and no use":     {"v1/pods\x00\x00" + strings.Repeat("a", 4000) + " in (", 40 * 4000},
		"a page, which ends after 128 KiB of it": {"v1/pods\x00\x00\x00", 100 * 1000},
	} {
		t.Run(name, func(t *testing.T) {
			spent, largest := int64(0), int64(0)
			spend := func(fuel int64) { spent, largest = spent+fuel, max(largest, fuel) }
			q, err := lookup.ParseList(test.question, spend)
			if err == nil {
				if _, err = lookup.Append(nil, q, list, encode, spend, math.MaxInt); err != nil {
					t.Fatal(err)
				}
			}
			if spent < test.least {
				t.Errorf("%d was paid, want %d at least", spent, test.least)
			}
			if largest > 5_000_000 {
				t.Errorf("%d was paid at once", largest)
			}
		})
	}
	// A guest without fuel does not return.
	defer func() {
		if r := recover(); r != "poor" {
			t.Errorf("recovered %v", r)
		}
	}()
	q, err := lookup.ParseList("v1/pods\x00", func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	encoded := 0
	_, _ = lookup.Append(nil, q, list, func(o *object) ([]byte, error) {
		if encoded++; encoded > 1000 {
			t.Fatal("the host goes on")
		}
		return encode(o)
	}, func(int64) { panic("poor") }, math.MaxInt)
}

func TestAnswersThatAreTooLong(t *testing.T) {
	for _, question := range []string{"v1/pods\x00", "v1/pods\x00\x00\x00"} {
		q, err := lookup.ParseList(question, func(int64) {})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lookup.Append(nil, q, some(1000), encode, func(int64) {}, 900); err == nil || err.Error() != "the list has more than 900 bytes: ask for pages of it" {
			t.Errorf("%q: %v", question, err)
		}
	}
}

func TestParseResource(t *testing.T) {
	for name, want := range map[string]string{
		"v1/pods": "/v1, Resource=pods", "networking.k8s.io/v1/ingresses": "networking.k8s.io/v1, Resource=ingresses", "stellar.org/v1alpha1/stellarnodes": "stellar.org/v1alpha1, Resource=stellarnodes",
	} {
		if got, err := lookup.ParseResource(name); err != nil || got.String() != want {
			t.Errorf("%s is %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "pods", "v1/", "/v1/pods", "v1/Pods", "v1/pods/status/x", "apps/v1/deployments/scale", "*/*", "v1/..", "v1/pods\x00"} {
		if got, err := lookup.ParseResource(name); err == nil {
			t.Errorf("%q is %s", name, got)
		}
	}
}

// FuzzList asks anything: each object that a question is about comes once, in order.
func FuzzList(f *testing.F) {
	for _, question := range []string{"v1/pods\x00", "v1/pods\x00a\x00even=true\x00a/1", "v1/pods\x00\x00!even,x notin (a, b)\x00", "\x00\x00\x00\x00", "v1/pods\x00a\x00\x00/"} {
		f.Add(question)
	}
	f.Fuzz(func(t *testing.T, question string) {
		q, err := lookup.ParseList(question, func(int64) {})
		if err != nil {
			return
		}
		last := q.After
		for range 20 {
			b, err := lookup.Append(nil, q, some(60<<10), encode, func(int64) {}, math.MaxInt)
			if err != nil {
				t.Fatal(err)
			}
			names, next := parse(t, b)
			for _, name := range names {
				if compare(name, last) <= 0 && last != "" {
					t.Fatalf("%q: %s comes behind %s", question, name, last)
				}
				last = name
				if namespace, _, _ := strings.Cut(name, "/"); q.Namespace != "" && namespace != q.Namespace {
					t.Fatalf("%q: %s is of another namespace", question, name)
				}
			}
			if next == "" {
				return
			}
			if !q.Paged || next != last {
				t.Fatalf("%q: the next page begins behind %q, the last has %q", question, next, last)
			}
			q.After = next
		}
		t.Fatalf("%q has no end", question)
	})
}

func compare(a, b string) int {
	namespace, name, _ := strings.Cut(a, "/")
	other, otherName, _ := strings.Cut(b, "/")
	if c := strings.Compare(namespace, other); c != 0 {
		return c
	}
	return strings.Compare(name, otherName)
}
