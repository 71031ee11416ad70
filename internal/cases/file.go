package cases

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/strict"
)

// File is a file of cases.
type File struct {
	// Config and Objects are for cases without their own.
	Config  json.RawMessage `json:"config,omitempty"`
	Objects Document        `json:"objects,omitempty"`
	Cases   []Case          `json:"cases"`
	// Dialects are the ABIs of admission plugins beside that of package abi.
	Dialects []*dialect.Dialect `json:"-"`
}

// Case is a call of a plugin, and the expected answer. Package host/cases describes the kinds of
// cases.
type Case struct {
	Name    string          `json:"name"`
	Config  json.RawMessage `json:"config,omitempty"`
	Objects Document        `json:"objects,omitempty"`

	// Of a scheduler plugin: Steps, or a Pod and a Node. Of a hook: the Pod, the Node if it reads
	// one, the name of a container, and differences from the request before the container is
	// created: the level (qos, pod or container).
	Steps     []Step   `json:"steps,omitempty"`
	Pod       Document `json:"pod,omitempty"`
	Node      Document `json:"node,omitempty"`
	Container string   `json:"container,omitempty"`
	Level     string   `json:"level,omitempty"`

	// Of an admission plugin: one of Create, Update, Delete, Review and Convert.
	Create      Document `json:"create,omitempty"`
	Update      Document `json:"update,omitempty"`
	Old         Document `json:"old,omitempty"` // Of an Update; the object itself if there is none.
	Delete      Document `json:"delete,omitempty"`
	Review      Document `json:"review,omitempty"` // A whole AdmissionReview.
	Subresource string   `json:"subresource,omitempty"`
	User        string   `json:"user,omitempty"`
	Groups      []string `json:"groups,omitempty"`
	Mutate      bool     `json:"mutate,omitempty"`
	Convert     Document `json:"convert,omitempty"`
	To          string   `json:"to,omitempty"`        // The apiVersion to convert to.
	RoundTrip   bool     `json:"roundTrip,omitempty"` // Converts back as well.

	// Of a plugin of a service.
	Method  string                     `json:"method,omitempty"`
	Request Document                   `json:"request,omitempty"`
	Answers map[string]json.RawMessage `json:"answers,omitempty"` // By SERVICE/METHOD.

	// Want is a status, a [Verdict], a converted object, fields of a decision or a response.
	Want Document `json:"want,omitempty"`
	// Refused, Error and Traps are parts of texts.
	Refused string `json:"refused,omitempty"`
	Error   string `json:"error,omitempty"`
	Traps   string `json:"traps,omitempty"`
}

// Step is a call of a scheduler plugin; one of the fields is set.
type Step struct {
	PreEnqueue     *PodStep       `json:"preenqueue,omitempty"`
	QueueSort      *QueueSortStep `json:"queuesort,omitempty"`
	SignPod        *PodStep       `json:"signpod,omitempty"`
	PreFilter      *PodStep       `json:"prefilter,omitempty"`
	AddPod         *NodeStep      `json:"addpod,omitempty"`
	RemovePod      *NodeStep      `json:"removepod,omitempty"`
	Filter         *NodeStep      `json:"filter,omitempty"`
	PostFilter     *NodeStep      `json:"postfilter,omitempty"`
	PreScore       *NodesStep     `json:"prescore,omitempty"`
	Score          *NodeStep      `json:"score,omitempty"`
	NormalizeScore *ScoresStep    `json:"normalizescore,omitempty"`
	Reserve        *NodeStep      `json:"reserve,omitempty"`
	Unreserve      *NodeStep      `json:"unreserve,omitempty"`
	Permit         *NodeStep      `json:"permit,omitempty"`
	PreBind        *NodeStep      `json:"prebind,omitempty"`
	Bind           *NodeStep      `json:"bind,omitempty"`
}

// PodStep is a call for a Pod.
type PodStep struct {
	Pod  Document `json:"pod"`
	Want string   `json:"want,omitempty"`
	// Nodes are those to which PreFilter must narrow the cycle.
	Nodes []string `json:"nodes,omitempty"`
	// Fragments are the values, in JSON, of the signature of the Pod by their keys.
	Fragments map[string]string `json:"fragments,omitempty"`
}

// NodeStep is a call for a Node in the cycle of a Pod.
type NodeStep struct {
	Node Document `json:"node"`
	// Pod is the one that is added or removed.
	Pod  Document `json:"pod,omitempty"`
	Want string   `json:"want,omitempty"`
	// Score is the result of Score, Nominated the Node that PostFilter must nominate, and Wait the
	// duration that Permit must return, such as 10s.
	Score     int64  `json:"score,omitempty"`
	Nominated string `json:"nominated,omitempty"`
	Wait      string `json:"wait,omitempty"`
	// Traps is a part of the output and the stack, if the call must trap.
	Traps string `json:"traps,omitempty"`
}

// NodesStep is a call for several Nodes.
type NodesStep struct {
	Nodes []Document `json:"nodes"`
	Want  string     `json:"want,omitempty"`
}

// ScoresStep is a call of NormalizeScore.
type ScoresStep struct {
	Scores []Score `json:"scores"`
	Want   []Score `json:"want"`
}

// Score is the score of a Node.
type Score struct {
	Name  string `json:"name"`
	Score int64  `json:"score,omitempty"`
}

// QueueSortStep sorts Pods, in the order of the list in which they came. Want is the order of their
// names.
type QueueSortStep struct {
	Pods []Document `json:"pods"`
	Want []string   `json:"want"`
}

// Verdict is the expected answer of an admission plugin. An empty one allows.
type Verdict struct {
	// Code is that of a denial, 0 for any. Denied is for a denial without further expectations.
	Denied bool `json:"denied,omitempty"`
	Code   int  `json:"code,omitempty"`
	// Message is the plugin's own, without its field errors, which are Errors.
	Message     string            `json:"message,omitempty"`
	Errors      []string          `json:"errors,omitempty"`
	Warnings    []string          `json:"warnings,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Object is the object as Mutate must leave it, if it must change it.
	Object json.RawMessage `json:"object,omitempty"`
}

// Document is a value in JSON, or the name of a file with one.
type Document struct{ json []byte }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Document) UnmarshalJSON(b []byte) error {
	d.json = append([]byte(nil), b...)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d Document) MarshalJSON() ([]byte, error) {
	if d.json == nil {
		return []byte("null"), nil
	}
	return d.json, nil
}

// IsZero reports whether there is no document.
func (d Document) IsZero() bool { return len(d.json) == 0 || string(d.json) == "null" }

// text returns a text, if the document is one.
func (d Document) text() (s string, ok bool) {
	ok = len(d.json) != 0 && d.json[0] == '"' && json.Unmarshal(d.json, &s) == nil
	return s, ok
}

// read returns the document, or the text of the file that it names. The items of a list are
// documents one after the other.
func (d Document) read(dir string) (string, error) {
	if name, ok := d.text(); ok {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		return string(text), err
	}
	if d.IsZero() {
		return "", nil
	}
	var items []json.RawMessage
	if d.json[0] != '[' || json.Unmarshal(d.json, &items) != nil {
		return string(d.json), nil
	}
	var b strings.Builder
	for _, item := range items {
		fmt.Fprintf(&b, "---\n%s\n", item)
	}
	return b.String(), nil
}

// Read reads a file of cases. The error names a field that does not exist.
func Read(name string) (*File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	document, err := manifest.JSON(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	f := &File{}
	if err := yaml.UnmarshalStrict(document, f); err != nil {
		if mistakes, _ := strict.Unmarshal(document, &File{}); len(mistakes) != 0 {
			err = errors.Join(mistakes...) // They name the field that was meant.
		}
		return nil, fmt.Errorf("read %s: %w", name, strict.Readable(err))
	}
	if len(f.Cases) == 0 {
		return nil, fmt.Errorf("read %s: it has no cases", name)
	}
	names := map[string]bool{}
	for i, c := range f.Cases {
		if c.Name == "" {
			return nil, fmt.Errorf("read %s: case %d has no name", name, i+1)
		}
		if names[c.Name] {
			return nil, fmt.Errorf("read %s: two cases have the name %q", name, c.Name)
		}
		names[c.Name] = true
	}
	return f, nil
}
