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
	"slices"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Objects are the objects of a file, in the order of the file.
type Objects struct {
	All   []Object
	Nodes []*corev1.Node
	Pods  []*corev1.Pod
	// Warnings name the fields of Pods and Nodes that are unknown to k8s.io/api: those of
	// a newer Kubernetes, or misspelt ones.
	Warnings []string

	read func()
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
	o := &Objects{read: read}
	var mistakes []error
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return o, mistakes, nil
		}
		ends := err != nil
		if err == nil {
			document, err = JSON(document)
		}
		errs := []error{err}
		if err == nil {
			known := len(o.Warnings)
			errs = o.add(document)
			for i, warning := range o.Warnings[known:] {
				o.Warnings[known+i] = fmt.Sprintf("document %d: %s", n, warning)
			}
		}
		for _, err := range errs {
			mistakes = append(mistakes, fmt.Errorf("document %d: %s", n, oneLine(err)))
		}
		if ends {
			return o, mistakes, nil
		}
	}
}

// JSON returns a document of YAML or JSON as JSON, "null" if it has only comments. Text after
// the document is an error; package yaml would ignore a second object of JSON.
func JSON(document []byte) ([]byte, error) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
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

// Decode decodes the only document of YAML or JSON strictly.
func Decode(document []byte, to any) error {
	text, err := JSON(document)
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(text, to)
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
		Items []runtime.RawExtension `json:"items"`
	}
	if err := json.Unmarshal(document, &head); err != nil {
		return []error{err}
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
		}
		return mistakes
	}
	decode := func(to any) error {
		unknown, err := kjson.UnmarshalStrict(document, to)
		for _, field := range unknown {
			o.Warnings = append(o.Warnings, fmt.Sprintf("the %s %s: %s", head.Kind, head.Metadata.Name, oneLine(field)))
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
	if o.read != nil {
		o.read()
	}
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
	if json.Unmarshal(document, &request) != nil || request.Operation == "" || !bytes.HasPrefix(request.Kind, []byte("{")) {
		return nil, false
	}
	return slices.Concat([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":`), document, []byte("}")), true
}

// oneLine folds an error of the YAML decoder, which may have several lines.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
