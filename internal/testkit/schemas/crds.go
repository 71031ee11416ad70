package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/sched"
)

// crds are the resources whose spec is a plugin of a configuration file, by the names of their
// files.
var crds = map[string]crd{
	"clusteradmissionpolicies": {of: reflect.TypeFor[manage.PluginSpec](), without: []string{"record"}},
	// What the owner of a namespace may not decide is not in the schema: files and addresses of the
	// server, its permissions, and other namespaces.
	"admissionpolicies": {of: reflect.TypeFor[manage.PluginSpec](), without: []string{"record", "grants", "converts"}, sources: []string{"oci", "configMap", "secret", "bytes"}},
	"nodehooks": {of: reflect.TypeFor[hooks.PluginConfig](), without: []string{"record"}, more: schema{
		"nodeSelector": schema{"type": "string", "description": "NodeSelector is a selector on the labels of the node. The plugin is not loaded on other nodes."},
	}},
	// One scheduler at a time schedules: a rollout would have no steps.
	"schedulerplugins": {of: reflect.TypeFor[sched.PluginConfig](), without: []string{"record", "rollout"}, more: schema{
		"schedulers": schema{"type": "object", "description": "Schedulers are the processes that the plugin is for, all by default.", "properties": schema{
			"names":    schema{"type": "array", "items": schema{"type": "string"}, "description": "Names are those of profiles, as Pods have them in schedulerName. Default all."},
			"selector": schema{"type": "string", "description": "Selector is a selector on the labels of the schedulers' Pods. Default all."},
		}},
	}},
}

// crd is a resource whose spec is a plugin.
type crd struct {
	of reflect.Type
	// without are the members that it does not have besides name.
	without []string
	// sources are the members of module that it has, nil for all.
	sources []string
	more    schema
}

// spec returns the schema of the spec, in the structural form of a CustomResourceDefinition.
func (c *crd) spec(w *writer) (schema, error) {
	s, err := w.schema(c.of, "")
	if err != nil {
		return nil, err
	}
	properties := s["properties"].(schema)
	maps.Copy(properties, c.more)
	c.restrict(s)
	rollout, err := w.schema(reflect.TypeFor[clusterplugins.Rollout](), "")
	if err != nil {
		return nil, err
	}
	rollout["description"] = "Rollout is the way by which a change comes into service, on some processes after the others. Without it a change serves at once."
	members := rollout["properties"].(schema)
	bound(members["unavailable"], 0, 100)
	members["steps"].(schema)["maxItems"] = 20
	step := members["steps"].(schema)["items"].(schema)["properties"].(schema)
	bound(step["percent"], 1, 100)
	properties["rollout"] = rollout
	from, err := w.schema(reflect.TypeFor[[]clusterplugins.GuestConfigFrom](), "")
	if err != nil {
		return nil, err
	}
	from["description"] = "GuestConfigFrom are texts of ConfigMaps and Secrets that are guestConfig, or its members. A change of them counts at once, and is no revision."
	from["maxItems"] = 8
	from["items"].(schema)["x-kubernetes-validations"] = []schema{{"rule": "has(self.configMap) != has(self.secret)", "message": "set one of configMap and secret"}}
	properties[clusterplugins.ConfigFrom] = from
	properties["revision"] = schema{"type": "integer", "minimum": 1, "description": "Revision is the number of the PluginRevision to serve at once, in place of the spec."}
	properties["revisionHistoryLimit"] = schema{"type": "integer", "minimum": 0, "maximum": 100, "description": "RevisionHistoryLimit is the number of PluginRevisions that are kept beside those in use. Default 10."}
	for _, name := range append(c.without, "name") {
		delete(properties, name)
	}
	s["required"] = []string{"module"}
	return structural(s), nil
}

// bound sets the bounds of a number.
func bound(of any, minimum, maximum int) {
	of.(schema)["minimum"], of.(schema)["maximum"] = minimum, maximum
}

// restrict removes the sources that modules do not have, those of shadows included.
func (c *crd) restrict(s schema) {
	properties, _ := s["properties"].(schema)
	if c.sources != nil && properties["sha256"] != nil {
		for _, member := range append(sources[:len(sources):len(sources)], "compiled") {
			if !slices.Contains(c.sources, member) {
				delete(properties, member)
			}
		}
	}
	for _, of := range properties {
		c.restrict(of.(schema))
	}
}

// sources are the members of a module that say where it comes from.
var sources = []string{"file", "https", "oci", "configMap", "secret", "bytes"}

// validations are rules of modules that the grammar has beyond the types of their members: see
// host.ModuleConfig.Check.
func validations(of schema) []schema {
	names := slices.DeleteFunc(slices.Clone(sources), func(source string) bool { return of[source] == nil })
	rules := []schema{
		{"rule": "[has(self." + strings.Join(names, "), has(self.") + ")].filter(x, x).size() == 1", "message": "one of " + strings.Join(names, ", ") + " is to be set"},
		{"rule": "!has(self.follow) || !self.follow || !has(self.sha256)", "message": "follow and sha256 exclude each other"},
	}
	if _, ok := of["https"]; ok {
		rules = append(rules, schema{"rule": "!has(self.https) || has(self.sha256)", "message": "https needs sha256"})
	}
	return rules
}

// structural returns a schema in the form that an API server takes.
func structural(s schema) schema {
	out := schema{}
	for key, value := range s {
		switch key {
		case "additionalProperties":
			if of, ok := value.(schema); ok {
				out[key] = structural(of)
			} // Otherwise the API server drops other members, or refuses them if it is asked to.
		case "properties":
			properties := schema{}
			for name, of := range value.(schema) {
				properties[name] = structural(of.(schema))
			}
			out[key] = properties
		case "items":
			out[key] = structural(value.(schema))
		case "anyOf": // A number of bytes, or a quantity.
			of := value.([]schema)
			out["x-kubernetes-int-or-string"] = true
			out["anyOf"] = []schema{{"type": "integer"}, {"type": "string"}}
			out["pattern"] = of[1]["pattern"]
			if minimum, ok := of[0]["minimum"]; ok {
				out["minimum"] = minimum
			}
		case "contentEncoding":
			// Not the format byte: rules in CEL would decode it, and refuse standard base64 with "/".
			out["pattern"] = "^[A-Za-z0-9+/]*={0,2}$"
		default:
			out[key] = value
		}
	}
	if _, ok := out["type"]; !ok && out["anyOf"] == nil {
		out["x-kubernetes-preserve-unknown-fields"] = true
	}
	if properties, ok := out["properties"].(schema); ok {
		if _, ok := properties["sha256"]; ok && properties["oci"] != nil {
			out["x-kubernetes-validations"] = validations(properties)
			properties["sha256"].(schema)["pattern"] = "^[0-9a-fA-F]{64}$"
		}
	}
	return out
}

// writeCRDs puts the schemas of specs into the CustomResourceDefinitions of a directory.
func writeCRDs(dir string) error {
	for name, c := range crds {
		file := filepath.Join(dir, "kubewasm.dev_"+name+".yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if text, err = c.write(text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	file := filepath.Join(dir, "kubewasm.dev_moduletrusts.yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		text, err = writeSignatures(text)
	}
	if err != nil {
		return fmt.Errorf("moduletrusts: %w", err)
	}
	return os.WriteFile(file, text, 0o644)
}

// writeSignatures puts the schema of signatures into the text of the CustomResourceDefinition of
// ModuleTrusts: a rule of trust without what is no signature, or a file of the process.
func writeSignatures(text []byte) ([]byte, error) {
	w := writer{comments: comments{}}
	s, err := w.schema(reflect.TypeFor[oci.Trust](), "")
	if err != nil {
		return nil, err
	}
	members := s["properties"].(schema)
	for _, name := range []string{"repositories", "unsigned", "refuseDowngrades"} {
		delete(members, name)
	}
	delete(s, "required")
	for _, name := range []string{"allOf", "anyOf"} {
		members[name].(schema)["maxItems"] = 64
		signer := members[name].(schema)["items"].(schema)
		delete(signer["properties"].(schema), "keyFile")
		signer["x-kubernetes-validations"] = []schema{{"rule": "[has(self.key), has(self.identity), has(self.certificate)].filter(x, x).size() == 1", "message": "set one of key, identity and certificate"}}
	}
	members["minimum"].(schema)["minimum"] = 1
	return rewrite(text, func(properties map[string]apiextensionsv1.JSONSchemaProps) error {
		of := properties["spec"].Properties["signatures"]
		s["description"] = of.Description
		of, err := props(structural(s))
		properties["spec"].Properties["signatures"] = of
		return err
	})
}

// write puts the schema of the spec into the text of a CustomResourceDefinition.
func (c *crd) write(text []byte) ([]byte, error) {
	w := writer{comments: comments{}}
	spec, err := c.spec(&w)
	if err != nil {
		return nil, err
	}
	return rewrite(text, func(properties map[string]apiextensionsv1.JSONSchemaProps) error {
		spec["description"] = properties["spec"].Description
		of, err := props(spec)
		properties["spec"] = of
		return err
	})
}

// props returns a schema in the type of a CustomResourceDefinition.
func props(s schema) (of apiextensionsv1.JSONSchemaProps, err error) {
	as, err := json.Marshal(s)
	if err != nil {
		return of, err
	}
	return of, json.Unmarshal(as, &of)
}

// rewrite changes the members of all versions in the text of a CustomResourceDefinition.
func rewrite(text []byte, change func(properties map[string]apiextensionsv1.JSONSchemaProps) error) ([]byte, error) {
	definition := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		return nil, err
	}
	for i := range definition.Spec.Versions {
		if err := change(definition.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties); err != nil {
			return nil, err
		}
	}
	// Without the status, which is the API server's.
	return yaml.Marshal(map[string]any{"apiVersion": definition.APIVersion, "kind": definition.Kind, "metadata": definition.ObjectMeta, "spec": definition.Spec})
}
