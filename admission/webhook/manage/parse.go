package manage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/yamlsize"
)

var errNoPolicies = errors.New(`it declares no policies: "plugins: []" says that there are to be none`)

// ParseFile reads a configuration file in YAML or JSON: one document, whose last line ends in a
// newline, a quote or a bracket. The error joins all mistakes that can be found without the modules
// and the server: unknown fields, fields that occur twice, values of the wrong kind, null, and
// policies that would never be asked.
func ParseFile(data []byte) (*File, error) {
	if err := yamlsize.Check(data, 4*len(data)+1<<20); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	document, text, errs := decodeYAML(data)
	if document == nil {
		return nil, fmt.Errorf("read configuration: %w", errors.Join(errs...))
	}
	errs = append(errs, nulls("", document)...)
	f := new(File)
	if err := configfile.JSON(text, f); err != nil {
		errs = append(errs, err)
	}
	if f.Plugins == nil && len(f.Groups) == 0 {
		errs = append(errs, errNoPolicies)
	}
	if len(errs) != 0 {
		return nil, fmt.Errorf("read configuration: %w", errors.Join(errs...))
	}
	// Only the manager can read labels.
	if errs := f.check(func(context.Context, string) (map[string]string, error) { return nil, nil }, nil); len(errs) != 0 {
		return nil, fmt.Errorf("configuration: %w", errors.Join(errs...))
	}
	return f, nil
}

// decodeYAML returns the fields of the only document in data, and the document in JSON; nil if they
// cannot be determined.
func decodeYAML(data []byte) (document map[string]any, text []byte, errs []error) {
	// Half a line may be half a word, which YAML would accept as a whole one.
	if end := bytes.TrimRight(data, " \t\r\n"); len(end) == len(bytes.TrimRight(data, " \t")) && len(end) != 0 && !bytes.ContainsAny(end[len(end)-1:], `]}"'`) {
		errs = append(errs, errors.New("the last line has no end: the file may have been cut off"))
	}
	decoder := goyaml.NewDecoder(bytes.NewReader(data))
	var first, second any
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) || err == nil && first == nil {
		return nil, nil, append(errs, errNoPolicies)
	} else if err != nil {
		return nil, nil, append(errs, err)
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		errs = append(errs, errors.New("it holds more than one document"))
	}
	if err := goyaml.UnmarshalStrict(data, &first); err != nil {
		errs = append(errs, err) // Reports keys that occur twice.
	}
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, nil, append(errs, configfile.YAML(data, new(File)))
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber() // A guestConfig keeps its digits.
	if err := d.Decode(&document); err != nil || document == nil {
		return nil, nil, append(errs, errors.New("it is no mapping with plugins and groups"))
	}
	return document, asJSON, errs
}

// nulls returns an error for each field that is null. Such a field may have lost its value, and
// would mean the default. A guestConfig may contain null.
func nulls(path string, value any) (errs []error) {
	switch value := value.(type) {
	case nil:
		errs = append(errs, fmt.Errorf("%s is null: leave it out for the default", path))
	case []any:
		for i, item := range value {
			errs = append(errs, nulls(fmt.Sprintf("%s[%d]", path, i), item)...)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if item := value[key]; key != "guestConfig" || item == nil {
				errs = append(errs, nulls(join(path, key), item)...)
			}
		}
	}
	return errs
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
