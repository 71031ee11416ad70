package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed manifests.yaml
var builtin []byte

// manifests are the objects that the guests decide about.
type manifests struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod
}

// readManifests reads a file of YAML documents, or the built-in one if the name
// is empty.
func readManifests(file string) (*manifests, error) {
	data := builtin
	if file != "" {
		var err error
		if data, err = os.ReadFile(file); err != nil {
			return nil, err
		}
	} else {
		file = "built-in manifests"
	}
	m := &manifests{}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = m.add(document)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, n, err)
		}
	}
	if len(m.nodes) == 0 && len(m.pods) == 0 {
		return nil, fmt.Errorf("%s: no Node and no Pod in it", file)
	}
	return m, nil
}

// add decodes a document: a Node, a Pod, a List of them, or nothing but
// comments. Objects of other kinds are passed over, so that a whole application
// can be given.
func (m *manifests) add(document []byte) error {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(document, &head); err != nil {
		return oneLine(err)
	}
	switch head.GroupVersionKind() {
	case corev1.SchemeGroupVersion.WithKind("Node"):
		node := &corev1.Node{}
		if err := yaml.Unmarshal(document, node); err != nil {
			return oneLine(err)
		}
		if node.Name == "" {
			return errors.New("the Node has no metadata.name")
		}
		m.nodes = append(m.nodes, node)
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal(document, pod); err != nil {
			return oneLine(err)
		}
		if pod.Name == "" {
			return errors.New("the Pod has no metadata.name")
		}
		if pod.Namespace == "" {
			pod.Namespace = metav1.NamespaceDefault
		}
		m.pods = append(m.pods, pod)
	case corev1.SchemeGroupVersion.WithKind("List"):
		var list struct {
			Items []runtime.RawExtension `json:"items"`
		}
		if err := yaml.Unmarshal(document, &list); err != nil {
			return oneLine(err)
		}
		for i, item := range list.Items {
			if err := m.add(item.Raw); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
	default:
		if head.Kind != "" && head.APIVersion == "" {
			return fmt.Errorf("the %s has no apiVersion", head.Kind)
		}
		if head.Kind == "" && len(bytes.TrimSpace(withoutComments(document))) != 0 {
			return errors.New("it has no kind")
		}
	}
	return nil
}

func withoutComments(document []byte) []byte {
	var rest []byte
	for line := range bytes.Lines(document) {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) {
			rest = append(rest, line...)
		}
	}
	return rest
}

// oneLine folds an error of the YAML decoder, which may have several lines.
func oneLine(err error) error {
	return errors.New(string(bytes.Join(bytes.Fields([]byte(err.Error())), []byte(" "))))
}
