package admission

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/serving"
)

const (
	conversionKind    = "ConversionReview"
	conversionVersion = "apiextensions.k8s.io/v1"
)

// DecodeConversionReview decodes a ConversionReview of apiextensions.k8s.io/v1 in JSON, for a
// server that is not a [Handler]. The objects and most strings of the request share memory with
// body, which must not be modified afterwards.
//
// It is strict: all objects have an apiVersion, one kind, and the group of the desired version, and
// no member that it reads occurs twice. An API server always sends such reviews.
func DecodeConversionReview(body []byte) (*ConversionRequest, error) {
	if !json.Valid(body) {
		// The slow path produces a better message.
		var v stdjson.RawMessage
		err := stdjson.Unmarshal(body, &v)
		return nil, fmt.Errorf("decode conversion review: %w", err)
	}
	var d decoder
	var version, kind, uid, desired string
	var request, objects json.Value
	d.object(body, member{"apiVersion", &version}, member{"kind", &kind}, member{"request", &request})
	if d.err == nil && (version != conversionVersion || kind != conversionKind) {
		return nil, fmt.Errorf("body is %s %s, want %s %s", orNone(version), orNone(kind), conversionVersion, conversionKind)
	}
	if d.err == nil && request == nil {
		return nil, errors.New("conversion review has no request")
	}
	d.path[0], d.depth = "request", 1
	d.object(request, member{"uid", &uid}, member{"desiredAPIVersion", &desired}, member{"objects", &objects})
	d.expect("objects", objects, json.KindArray)
	if d.err != nil {
		return nil, fmt.Errorf("decode conversion review: %w", d.err)
	}
	if uid == "" {
		return nil, errors.New("request of the conversion review has no uid")
	}
	gv, err := schema.ParseGroupVersion(desired)
	if err != nil || gv.Group == "" || gv.Version == "" {
		return nil, fmt.Errorf("request.desiredAPIVersion is %s, want a group and a version such as example.com/v1", orNone(desired))
	}
	r := &ConversionRequest{UID: types.UID(uid), Desired: gv}
	n := 0
	for e := json.Array(objects); e.Next(); {
		n++
	}
	r.Objects = make([][]byte, 0, n)
	for e := json.Array(objects); e.Next(); {
		if err := r.add(e.Value()); err != nil {
			return nil, fmt.Errorf("decode conversion review: request.objects[%d]%w", len(r.Objects), err)
		}
	}
	return r, nil
}

// add adds an object to the request. Its error is meant to follow the name of the object.
func (r *ConversionRequest) add(object json.Value) error {
	if object.Kind() != json.KindObject {
		return fmt.Errorf(" is %s, want object", object.Kind())
	}
	var d decoder
	var version, kind string
	var metadata json.Value
	d.object(object, member{"apiVersion", &version}, member{"kind", &kind}, member{"metadata", &metadata})
	d.expect("metadata", metadata, json.KindObject)
	if d.err != nil {
		return fmt.Errorf(": %w", d.err)
	}
	gv, err := schema.ParseGroupVersion(version)
	switch {
	case err != nil || version == "":
		return fmt.Errorf(".apiVersion is %s, want a group and a version", orNone(version))
	case gv.Group != r.Desired.Group:
		return fmt.Errorf(".apiVersion is %s, not of group %s", orNone(version), r.Desired)
	case kind == "":
		return errors.New(".kind is empty")
	case r.Kind != "" && kind != r.Kind:
		return fmt.Errorf(".kind is %s, but earlier ones are %s", orNone(kind), orNone(r.Kind))
	}
	r.Kind = kind
	r.Objects = append(r.Objects, object)
	return nil
}

// serveConversion answers a request with the ConversionReview in body.
func (h *Handler) serveConversion(ctx context.Context, w http.ResponseWriter, body []byte) {
	request, err := DecodeConversionReview(body)
	if err != nil {
		serving.WriteStatus(w, http.StatusBadRequest, err.Error())
		return
	}
	converted, err := h.convert(ctx, request)
	head, separator, tail := conversionAnswer(request, err)
	length := len(head) + len(tail)
	for i, object := range converted {
		length += len(object) + len(separator)*min(i, 1)
	}
	w.Header()["Content-Type"] = jsonContent
	w.Header().Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(http.StatusOK)
	_, err = w.Write(head)
	for i, object := range converted {
		if i > 0 && err == nil {
			_, err = w.Write(separator)
		}
		if err == nil {
			_, err = w.Write(object)
		}
	}
	if err == nil {
		_, err = w.Write(tail)
	}
	if err != nil {
		h.log("write conversion review", "uid", request.UID, "err", err)
	}
}

// conversionAnswer returns a review without its objects: the parts before, between and after them.
func conversionAnswer(request *ConversionRequest, failure error) (head, separator, tail []byte) {
	head = append(head, `{"kind":"`+conversionKind+`","apiVersion":"`+conversionVersion+`","response":{"uid":`...)
	head = append(json.AppendString(head, string(request.UID)), `,"result":{"status":`...)
	if failure != nil {
		head = append(head, `"Failure","message":`...)
		head = json.AppendString(head, cmp.Or(publicerr.Words(failure), "no reason given"))
	} else {
		head = append(head, `"Success"`...)
	}
	return append(head, `},"convertedObjects":[`...), []byte{','}, []byte(`]}}`)
}

// convert calls the Converter and turns panics into failures.
func (h *Handler) convert(ctx context.Context, request *ConversionRequest) (converted [][]byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			h.log("conversion panicked", "uid", request.UID, "panic", r, "stack", string(debug.Stack()))
			if h.Panicked != nil {
				h.Panicked()
			}
			converted, err = nil, errors.New("conversion panicked")
		}
	}()
	if len(request.Objects) == 0 {
		return nil, nil // Without objects there is no kind.
	}
	converted, err = h.Converter.Convert(ctx, request)
	switch {
	case err != nil:
		h.log("convert", "uid", request.UID, "kind", kindName(request.GroupKind()), "err", publicerr.Redact(err.Error()))
		return nil, err
	case len(converted) != len(request.Objects):
		return nil, fmt.Errorf("conversion returned %d objects for %d", len(converted), len(request.Objects))
	}
	return converted, nil
}
