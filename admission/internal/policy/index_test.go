package policy_test

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
)

// place is a place of an index.
type place struct{ Start, End int }

// placesOf returns the fields objectIndex and oldObjectIndex of an encoded request.
func placesOf(t *testing.T, envelope []byte) (object, old []place) {
	t.Helper()
	for len(envelope) != 0 {
		field, typ, n := protowire.ConsumeField(envelope)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		if field == 101 || field == 102 {
			_, _, tag := protowire.ConsumeTag(envelope)
			if typ != protowire.BytesType {
				t.Fatalf("field %d has the type %d", field, typ)
			}
			packed, _ := protowire.ConsumeBytes(envelope[tag:])
			for ; len(packed) != 0; packed = packed[8:] {
				p, _ := protowire.ConsumeFixed64(packed)
				if field == 101 {
					object = append(object, place{int(uint32(p)), int(p >> 32)})
				} else {
					old = append(old, place{int(uint32(p)), int(p >> 32)})
				}
			}
		}
		envelope = envelope[n:]
	}
	return object, old
}

// longer returns the places of the arrays and objects of least bytes or more, as encoding/json
// finds them.
func longer(t *testing.T, doc []byte, least int) []place {
	t.Helper()
	var places []place
	var open []int
	d := stdjson.NewDecoder(bytes.NewReader(doc))
	for {
		token, err := d.Token()
		if err != nil {
			break
		}
		end := int(d.InputOffset())
		switch token {
		case stdjson.Delim('{'), stdjson.Delim('['):
			open = append(open, end-1)
		case stdjson.Delim('}'), stdjson.Delim(']'):
			if start := open[len(open)-1]; end-start >= least {
				places = append(places, place{start, end})
			}
			open = open[:len(open)-1]
		}
	}
	slices.SortFunc(places, func(a, b place) int { return a.Start - b.Start })
	return places
}

func TestIndex(t *testing.T) {
	pod, err := os.ReadFile("../../testdata/pod.json")
	if err != nil {
		t.Fatal(err)
	}
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",%s"operation":"UPDATE"}}`
	long := `{"spec":{"list":[` + strings.Repeat(`{"name":"a","value":"`+strings.Repeat("b", 300)+`"},{"a":["`+strings.Repeat("c", 60)+`"]},`, 200) + `{}]}}`
	for name, test := range map[string]struct {
		objects string
		least   int
	}{
		"object":                     {`"object":` + string(pod) + `,`, 64},
		"old object":                 {`"oldObject":` + string(pod) + `,`, 64},
		"both":                       {`"object":` + string(pod) + `,"oldObject":` + string(pod) + `,`, 64},
		"space around":               {"\"oldObject\" : \n\t" + string(pod) + " ,\"object\":\t" + string(pod) + ` ,`, 64},
		"null":                       {`"object":null,"oldObject":` + string(pod) + `,`, 64},
		"a long one, sparsely":       {`"object":` + long + `,`, 256},
		"more places than there may": {`"object":{"a":` + strings.Repeat("[", 600) + `"` + strings.Repeat("a", 100) + `"` + strings.Repeat("]", 600) + `},`, -1},
		"nothing long enough":        {`"object":{"a":{"b":[1,2]}},"oldObject":{},`, 64},
	} {
		t.Run(name, func(t *testing.T) {
			body := fmt.Appendf(nil, review, test.objects)
			index, ok := policy.ValidIndex(body)
			if !ok {
				t.Fatal("it is not valid")
			}
			request, err := admission.DecodeReview(body)
			if err != nil {
				t.Fatal(err)
			}
			r := policy.NewRequest(request, index)
			defer r.Free()
			least := max(test.least, len(body)/256)
			object, old := placesOf(t, r.Envelope)
			if test.least < 0 {
				if len(object)+len(old) != 0 {
					t.Errorf("%d places, want none", len(object)+len(old))
				}
				return
			}
			if diff := cmp.Diff(longer(t, request.Object.Raw, least), object, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("of object (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(longer(t, request.OldObject.Raw, least), old, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("of oldObject (-want +got):\n%s", diff)
			}

			// What a mutator has changed lies elsewhere.
			changed := *request
			changed.Object.Raw = bytes.Clone(request.Object.Raw)
			again := policy.NewRequest(&changed, index)
			defer again.Free()
			if object, still := placesOf(t, again.Envelope); len(object) != 0 || !slices.Equal(still, old) {
				t.Errorf("after a change: places %v of object and %v of oldObject", object, still)
			}
		})
	}
	if _, ok := policy.ValidIndex([]byte(`{"a":`)); ok {
		t.Error("a review that is cut off is valid")
	}
}
