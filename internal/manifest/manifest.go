// Package manifest reads files of Kubernetes objects in YAML or JSON.
package manifest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	goyaml "go.yaml.in/yaml/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	kwjson "github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/quantities"
	"github.com/kubewasm/kubewasm/internal/strict"
)

// Objects are the objects of a file, in the order of the file.
type Objects struct {
	All   []Object
	Nodes []*corev1.Node
	Pods  []*corev1.Pod
	// Warnings name the fields of Pods and Nodes that are unknown to k8s.io/api: those of
	// a newer Kubernetes, or misspelt ones.
	Warnings []string

	// stopped is called for each object, and reports whether no more are to be read.
	stopped func() bool
	ended   bool
}

// Named returns an error if a Pod or a Node has no name.
func (o *Objects) Named() error {
	for i := range o.All {
		if object := &o.All[i]; object.Name == "" && object.APIVersion == "v1" && (object.Kind == "Pod" || object.Kind == "Node") {
			return fmt.Errorf("object %d: the %s has no metadata.name", i+1, object.Kind)
		}
	}
	return nil
}

// Object is an object of any kind.
type Object struct {
	metav1.TypeMeta
	Namespace, Name string
	// JSON is the object as it stands in the file.
	JSON []byte
}

// Read reads documents of YAML or JSON. A List is replaced by its items, and Pods without a
// namespace are in "default". An object may have no name: the API server names some when
// they are created. The error names the document; an unknown field of a Pod or a Node is
// one as well.
func Read(data []byte) (*Objects, error) {
	o, mistakes, _ := ReadOn(context.Background(), data, nil) // The context does not end.
	switch {
	case len(mistakes) != 0:
		return nil, mistakes[0]
	case len(o.Warnings) != 0:
		return nil, errors.New(o.Warnings[0])
	case len(o.All) == 0:
		return nil, errors.New("no objects in it")
	}
	return o, nil
}

// ReadOn is Read for objects that others have written, for any Kubernetes. It warns of
// unknown fields and goes on after a document that is no object. It returns the objects of
// the others, which may be none, and a mistake for each document, or item of a List, that
// is no object. It calls read, unless that is nil, for each object. The error is that of ctx.
func ReadOn(ctx context.Context, data []byte, read func()) (*Objects, []error, error) {
	o := &Objects{stopped: func() bool {
		if read != nil {
			read()
		}
		return ctx.Err() != nil
	}}
	var mistakes []error
	n := 0
	for documents := range converted(ctx, data) {
		for _, document := range documents {
			n++
			errs := []error{document.err}
			if document.err == nil {
				known := len(o.Warnings)
				errs = o.add(document.json)
				for i, warning := range o.Warnings[known:] {
					o.Warnings[known+i] = fmt.Sprintf("document %d: %s", n, warning)
				}
			}
			for _, err := range errs {
				if err != nil {
					mistakes = append(mistakes, fmt.Errorf("document %d: %s", n, oneLine(err)))
				}
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	return o, mistakes, nil
}

// document is a document in JSON, or why it is none.
type document struct {
	json []byte
	err  error
}

// converted yields the documents of data in their order, some at a time, which it converts side
// by side: to parse YAML takes longer than all else. It ends when ctx does.
func converted(ctx context.Context, data []byte) iter.Seq[[]document] {
	const some = 256
	return func(yield func([]document) bool) {
		reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for ends := false; !ends && ctx.Err() == nil; {
			var texts [][]byte
			var failed error
			for len(texts) < some && !ends {
				text, err := reader.Read()
				if ends = err != nil; !ends {
					texts = append(texts, text)
				} else if !errors.Is(err, io.EOF) {
					failed = err
				}
			}
			documents := make([]document, len(texts))
			var next atomic.Int64
			var running sync.WaitGroup
			for range min(len(texts), runtime.GOMAXPROCS(0)) {
				running.Go(func() {
					for i := int(next.Add(1)) - 1; i < len(texts) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
						documents[i].json, documents[i].err = JSON(texts[i])
					}
				})
			}
			running.Wait()
			if ctx.Err() != nil || !yield(documents) {
				return
			}
			if failed != nil {
				yield([]document{{err: failed}}) // It is the last.
			}
		}
	}
}

// JSON returns a document of YAML or JSON as JSON, "null" if it has only comments. Text after
// the document is an error; package yaml would ignore a second object of JSON.
func JSON(document []byte) ([]byte, error) {
	if text := plainJSON(document); text != nil {
		return text, nil
	}
	if text := plainYAML(document); text != nil {
		return text, nil
	}
	if bytes.HasPrefix(document, []byte("\x00asm")) {
		return nil, errors.New("it is a WebAssembly module, want YAML or JSON")
	}
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	if oneMapping(document) {
		return text, nil
	}
	decoder := goyaml.NewDecoder(bytes.NewReader(document))
	var v any
	if err = decoder.Decode(&v); err == nil {
		err = decoder.Decode(&v)
	}
	if !errors.Is(err, io.EOF) {
		return nil, errors.New(`something follows the document; a line "---" separates two`)
	}
	return text, nil
}

// plainJSON returns a document that is one object of JSON as it stands, without spaces, and nil
// for any other: for one with a key that occurs twice, as well, which YAML refuses.
func plainJSON(document []byte) []byte {
	text := bytes.TrimSpace(document)
	if len(text) == 0 || text[0] != '{' || !utf8.Valid(text) || !json.Valid(text) || !unique(kwjson.Value(text), 0) {
		return nil
	}
	var compact bytes.Buffer
	if json.Compact(&compact, text) != nil {
		return nil
	}
	return compact.Bytes()
}

// maxDepth is how deep plainJSON follows a document. YAML's reader takes deeper ones.
const maxDepth = 500

// unique reports whether no key of a value occurs twice in an object.
func unique(v kwjson.Value, depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch v.Kind() {
	case kwjson.KindObject:
		var keys []string
		for m := kwjson.Object(v); m.Next(); {
			if keys = append(keys, m.Key()); !unique(m.Value(), depth+1) {
				return false
			}
		}
		slices.Sort(keys)
		return len(slices.Compact(keys)) == len(keys)
	case kwjson.KindArray:
		for a := kwjson.Array(v); a.Next(); {
			if !unique(a.Value(), depth+1) {
				return false
			}
		}
	}
	return true
}

// oneMapping reports whether a document is surely the only one of its text: a mapping whose first
// key is plain and begins in the first column ends where a document does, and no line begins another.
func oneMapping(document []byte) bool {
	if bytes.Count(document, []byte("\r")) != bytes.Count(document, []byte("\r\n")) || bytes.ContainsAny(document, "\u0085\u2028\u2029") {
		return false // YAML has lines that end with these alone.
	}
	begun, marked := false, false
	for line := range bytes.Lines(document) {
		marker := bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(line, []byte("..."))
		switch {
		case begun && marker:
			return false
		case begun, len(bytes.TrimSpace(line)) == 0, line[0] == '#':
		case !marked && string(bytes.TrimSpace(line)) == "---":
			marked = true
		default:
			if _, _, begun = plainKey(string(bytes.TrimRight(line, "\r\n"))); !begun {
				return false
			}
		}
	}
	return begun
}

// Decode decodes the only document of YAML or JSON strictly.
func Decode(document []byte, to any) error {
	text, err := JSON(document)
	if err != nil {
		return err
	}
	if err := quantities.Check(text, to); err != nil {
		return err
	}
	return strict.Readable(yaml.UnmarshalStrict(text, to))
}

// add takes a document, in JSON. It returns a mistake for each item that is no object.
func (o *Objects) add(document []byte) []error {
	if string(document) == "null" {
		return nil // Nothing but comments.
	}
	if document, ok := review(document); ok {
		return o.add(document)
	}
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
		Items []apiruntime.RawExtension `json:"items"`
	}
	if err := json.Unmarshal(document, &head); err != nil {
		return []error{strict.Readable(err)}
	}
	switch {
	case head.Kind == "":
		return []error{errors.New("it has no kind")}
	case head.APIVersion == "":
		return []error{fmt.Errorf("the %s has no apiVersion", head.Kind)}
	case head.Items != nil && strings.HasSuffix(head.Kind, "List"):
		var mistakes []error
		for i, item := range head.Items {
			for _, err := range o.add(item.Raw) {
				mistakes = append(mistakes, fmt.Errorf("item %d: %w", i, err))
			}
			if o.ended {
				return mistakes
			}
		}
		return mistakes
	}
	decode := func(to any) error {
		if err := quantities.Check(document, to); err != nil {
			return err
		}
		unknown, err := strict.Unmarshal(document, to)
		for _, field := range unknown {
			// A field of a newer Kubernetes is none of the known ones, so they are not listed.
			text, _, _ := strings.Cut(oneLine(field), ", there are ")
			o.Warnings = append(o.Warnings, fmt.Sprintf("the %s %s: %s", head.Kind, head.Metadata.Name, text))
		}
		if err != nil {
			if mistake := quantities.Mistake(document, to); mistake != nil {
				err = mistake
			}
			err = fmt.Errorf("the %s %s: %w", head.Kind, head.Metadata.Name, err)
		}
		return err
	}
	switch head.GroupVersionKind() {
	case corev1.SchemeGroupVersion.WithKind("Node"):
		node := &corev1.Node{}
		if err := decode(node); err != nil {
			return []error{err}
		}
		o.Nodes = append(o.Nodes, node)
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		pod := &corev1.Pod{}
		if err := decode(pod); err != nil {
			return []error{err}
		}
		if pod.Namespace == "" {
			pod.Namespace = metav1.NamespaceDefault
		}
		head.Metadata.Namespace = pod.Namespace
		o.Pods = append(o.Pods, pod)
	}
	o.ended = o.stopped()
	o.All = append(o.All, Object{head.TypeMeta, head.Metadata.Namespace, head.Metadata.Name, document})
	return nil
}

// review returns the AdmissionReview of a request without one, as tools of policies keep
// it. Such a document has a kind that is no string.
func review(document []byte) ([]byte, bool) {
	var request struct {
		Kind      json.RawMessage `json:"kind"`
		Operation string          `json:"operation"`
	}
	// A request has an operation, and few objects have the word.
	if !bytes.Contains(document, []byte(`"operation"`)) || json.Unmarshal(document, &request) != nil || request.Operation == "" || !bytes.HasPrefix(request.Kind, []byte("{")) {
		return nil, false
	}
	return slices.Concat([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":`), document, []byte("}")), true
}

// oneLine folds an error of the YAML decoder, which may have several lines.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
