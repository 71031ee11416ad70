package host

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// ObjectGetter reads ConfigMaps or Secrets. A client-go clientset becomes one in
// a few lines: see the example of [ConfigMapKey]. Implementations are safe for
// use by several goroutines.
type ObjectGetter interface {
	// Get returns an object's data by key; of a ConfigMap, data and binaryData
	// together. The caller does not change the bytes. An error need not name
	// the object.
	Get(ctx context.Context, namespace, name string) (map[string][]byte, error)
}

// ObjectGetterFunc is a function that is an ObjectGetter.
type ObjectGetterFunc func(ctx context.Context, namespace, name string) (map[string][]byte, error)

// Get calls f.
func (f ObjectGetterFunc) Get(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	return f(ctx, namespace, name)
}

// ObjectWatcher is an ObjectGetter that notices changes, as an informer does.
type ObjectWatcher interface {
	ObjectGetter
	// Watch watches one object as [Watcher.Watch] watches a module.
	Watch(ctx context.Context, namespace, name string, changed func()) error
}

// ConfigMapKey returns the source of a module in a ConfigMap, under one key of binaryData or, in
// base64, of data. It may be compressed by gzip, so that a guest in Go fits into the mebibyte of a
// ConfigMap. It is a [Watcher] if getter is an [ObjectWatcher].
func ConfigMapKey(getter ObjectGetter, namespace, name, key string) Source {
	return newObjectKey(getter, "configmap", namespace, name, key)
}

// secretKey returns the source of a module under one key of a Secret, as it is
// or once more in base64. It is a [Watcher] if getter is an [ObjectWatcher].
func secretKey(getter ObjectGetter, namespace, name, key string) Source {
	return newObjectKey(getter, "secret", namespace, name, key)
}

func newObjectKey(getter ObjectGetter, kind, namespace, name, key string) Source {
	s := objectKey{getter: getter, kind: kind, namespace: namespace, name: name, key: key}
	if watcher, ok := getter.(ObjectWatcher); ok {
		return watchedObjectKey{s, watcher}
	}
	return s
}

type objectKey struct {
	getter                     ObjectGetter
	kind, namespace, name, key string
}

// Check implements loading.Checker.
func (s objectKey) Check(string) error {
	var errs []error
	if s.getter == nil {
		errs = append(errs, fmt.Errorf("source %s: getter is missing", s))
	}
	for _, part := range []struct{ what, value string }{{"namespace", s.namespace}, {"name", s.name}, {"key", s.key}} {
		if part.value == "" {
			errs = append(errs, fmt.Errorf("source %s: %s is empty", s, part.what))
		}
	}
	return errors.Join(errs...)
}

func (s objectKey) Fetch(ctx context.Context) ([]byte, error) {
	if err := s.Check(""); err != nil {
		return nil, err
	}
	data, err := s.getter.Get(ctx, s.namespace, s.name)
	if err != nil {
		// The API server's text names its address, or the user.
		return nil, publicerr.Wrap(fmt.Sprintf("get %s: it cannot be read", s), fmt.Errorf("get %s: %w", s, err))
	}
	value, ok := data[s.key]
	if !ok {
		return nil, fmt.Errorf("get %s: none of its %d keys has this name", s, len(data))
	}
	module, err := decodeValue(value)
	if err == nil {
		module, err = unpack(module)
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", s, err)
	}
	if len(module) > wasmbin.MaxModuleBytes {
		return nil, fmt.Errorf("get %s: module has %d bytes, more than %d", s, len(module), wasmbin.MaxModuleBytes)
	}
	return module, nil
}

// magic are the first bytes of a WebAssembly module. The first one occurs in no base64.
var magic = []byte("\x00asm")

// decodeValue returns the module in a value: the value itself or its base64, with or without line
// breaks.
func decodeValue(value []byte) ([]byte, error) {
	isModule := func(b []byte) bool { return bytes.HasPrefix(b, magic) || bytes.HasPrefix(b, gzipMagic) }
	if isModule(value) {
		return value, nil
	}
	text := bytes.TrimSpace(value)
	module := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(module, text)
	if err != nil || !isModule(module[:n]) {
		return nil, fmt.Errorf("value of %d bytes is not a WebAssembly module, plain or in base64", len(value))
	}
	return module[:n], nil
}

func (s objectKey) String() string {
	return fmt.Sprintf("%s %s/%s key %q", s.kind, s.namespace, s.name, s.key)
}

// watchedObjectKey is a separate type, since only a source that can be watched may have the method.
type watchedObjectKey struct {
	objectKey
	watcher ObjectWatcher
}

// Watch implements [Watcher].
func (s watchedObjectKey) Watch(ctx context.Context, changed func()) error {
	if err := s.Check(""); err != nil {
		return err
	}
	return s.watcher.Watch(ctx, s.namespace, s.name, changed)
}
