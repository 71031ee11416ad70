// Package manifest reads files of Kubernetes objects in YAML or JSON.
package manifest

import (
	"bufio"
	"bytes"
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
	"sigs.k8s.io/yaml"
)

// Objects are the objects of a file, in the order of the file.
type Objects struct {
	All   []Object
	Nodes []*corev1.Node
	Pods  []*corev1.Pod
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
// they are created. The error names the document.
func Read(data []byte) (*Objects, error) {
	o := &Objects{}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			document, err = JSON(document)
		}
		if err == nil {
			err = o.add(document)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %s", n, oneLine(err))
		}
	}
	if len(o.All) == 0 {
		return nil, errors.New("no objects in it")
	}
	return o, nil
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

// add takes a document, in JSON.
func (o *Objects) add(document []byte) error {
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
		return err
	}
	switch {
	case head.Kind == "":
		return errors.New("it has no kind")
	case head.APIVersion == "":
		return fmt.Errorf("the %s has no apiVersion", head.Kind)
	case head.Items != nil && strings.HasSuffix(head.Kind, "List"):
		for i, item := range head.Items {
			if err := o.add(item.Raw); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
		return nil
	}
	switch head.GroupVersionKind() {
	case corev1.SchemeGroupVersion.WithKind("Node"):
		node := &corev1.Node{}
		if err := yaml.UnmarshalStrict(document, node); err != nil {
			return err
		}
		o.Nodes = append(o.Nodes, node)
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		pod := &corev1.Pod{}
		if err := yaml.UnmarshalStrict(document, pod); err != nil {
			return err
		}
		if pod.Namespace == "" {
			pod.Namespace = metav1.NamespaceDefault
		}
		head.Metadata.Namespace = pod.Namespace
		o.Pods = append(o.Pods, pod)
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
