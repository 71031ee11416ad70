package host_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/host"
)

func TestObjectKeys(t *testing.T) {
	const module = "\x00asm\x01\x00\x00\x00"
	text := base64.StdEncoding.EncodeToString([]byte(module))
	denied := errors.New("denied")
	getter := host.ObjectGetterFunc(func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if namespace+"/"+name != "plugins/zone" {
			return nil, denied
		}
		return map[string][]byte{
			"binary":    []byte(module),
			"text":      []byte(text),
			"folded":    []byte("  " + text[:4] + "\n" + text[4:8] + "\r\n" + text[8:] + "\n"),
			"empty":     {},
			"prose":     []byte("no module"),
			"otherText": []byte(base64.StdEncoding.EncodeToString([]byte("no module"))),
		}, nil
	})
	sources := map[string]func(getter host.ObjectGetter, namespace, name, key string) host.Source{
		"configmap": host.ConfigMapKey, "secret": host.SecretSource,
	}
	tests := map[string]struct {
		getter               host.ObjectGetter
		namespace, name, key string
		want, wantErr        string // %s is the kind.
	}{
		"binary":                {getter, "plugins", "zone", "binary", module, ""},
		"base64":                {getter, "plugins", "zone", "text", module, ""},
		"base64 in lines":       {getter, "plugins", "zone", "folded", module, ""},
		"empty value":           {getter, "plugins", "zone", "empty", "", `get %s plugins/zone key "empty": value of 0 bytes is not a WebAssembly module, plain or in base64`},
		"text":                  {getter, "plugins", "zone", "prose", "", "value of 9 bytes is not a WebAssembly module"},
		"base64 of text":        {getter, "plugins", "zone", "otherText", "", "value of 12 bytes is not a WebAssembly module"},
		"missing key":           {getter, "plugins", "zone", "absent", "", `get %s plugins/zone key "absent": none of its 6 keys has this name`},
		"missing object":        {getter, "plugins", "absent", "binary", "", `get %s plugins/absent key "binary": denied`},
		"no namespace":          {getter, "", "zone", "binary", "", `source %s /zone key "binary": namespace is empty`},
		"no name":               {getter, "plugins", "", "binary", "", "name is empty"},
		"no key":                {getter, "plugins", "zone", "", "", "key is empty"},
		"nobody to ask for one": {nil, "plugins", "zone", "binary", "", "getter is missing"},
	}
	for kind, source := range sources {
		for name, test := range tests {
			t.Run(kind+", "+name, func(t *testing.T) {
				got, err := source(test.getter, test.namespace, test.name, test.key).Fetch(t.Context())
				checkFetch(t, got, err, test.want, strings.ReplaceAll(test.wantErr, "%s", kind))
				if test.name == "absent" && !errors.Is(err, denied) {
					t.Errorf("%v does not wrap the getter's error", err)
				}
			})
		}
	}
	t.Run("all mistakes at once", func(t *testing.T) {
		_, err := newRuntime(t).Load(t.Context(), host.Config{Module: host.ModuleConfig{Source: host.SecretSource(nil, "", "", "")}}, host.Adapter{})
		for _, want := range []string{"getter is missing", "namespace is empty", "name is empty", "key is empty", "kind is missing"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s too", err, want)
			}
		}
	})
	t.Run("only what can be watched is a watcher", func(t *testing.T) {
		if _, ok := host.ConfigMapKey(getter, "plugins", "zone", "binary").(host.Watcher); ok {
			t.Error("a getter alone makes a watcher")
		}
		if _, ok := host.ConfigMapKey(configMaps{}, "plugins", "zone", "binary").(host.Watcher); !ok {
			t.Error("a getter that watches does not make a watcher")
		}
	})
}
