package admission

import (
	"errors"
	"strings"

	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
)

// Converter converts objects of custom resources from one version to another. The
// configuration of the plugin names their kinds.
type Converter interface {
	// Convert changes the object of c by patch to its form in the version c.To. The new apiVersion
	// need not be set. An error is the reason why the object cannot be converted, for the user who
	// reads or writes it.
	//
	// # Notes
	//
	//   - Everything may be changed except the kind and the metadata, of which only labels and
	//     annotations may.
	//   - An object is stored in one version, and read, changed and written in others. Data for
	//     which one version has no field is kept, in an annotation for example, so that converting
	//     there and back changes nothing.
	//   - The result depends on the object and the versions alone: Get and List fail the
	//     call.
	//   - Defaulting is left to the schema, and reporting mistakes to validation: an object that
	//     was stored once has to be convertible.
	Convert(c *Conversion, patch *Patch) error
}

// Conversion is an object to convert. Strings and bytes that it returns may be kept, and bytes must
// not be written to. The Conversion itself, and views of its object, are valid during the call.
type Conversion struct {
	fetched                   bool
	object                    []byte
	apiVersion, kind, desired string
}

func (c *Conversion) fill(object []byte, desired string) {
	c.object, c.desired = object, desired
	for m := json.Object(object); m.Next(); {
		switch m.Key() {
		case "apiVersion":
			c.apiVersion = m.Value().String()
		case "kind":
			c.kind = m.Value().String()
		}
	}
}

// read fetches the object, once.
func (c *Conversion) read() *Conversion {
	if !c.fetched {
		c.fetched = true
		c.fill(fetchObject(), string(fetchDesiredAPIVersion()))
	}
	return c
}

// Object returns the object, in JSON.
func (c *Conversion) Object() []byte { return c.read().object }

// Kind returns the kind of the object.
func (c *Conversion) Kind() string { return c.read().kind }

// Group returns the group of the object, the same before and after the conversion.
func (c *Conversion) Group() string {
	group, _ := split(c.read().desired)
	return group
}

// From returns the version that the object has, such as "v1beta1".
func (c *Conversion) From() string {
	_, version := split(c.read().apiVersion)
	return version
}

// To returns the version that the object is to have, such as "v1".
func (c *Conversion) To() string {
	_, version := split(c.read().desired)
	return version
}

// Unsupported returns the error of a Converter that does not know the kind, or one of the
// versions.
func (c *Conversion) Unsupported() error {
	return errors.New("the plugin does not convert " + c.Kind() + " of " + c.Group() + " from " + c.From() + " to " + c.To())
}

func split(apiVersion string) (group, version string) {
	if group, version, ok := strings.Cut(apiVersion, "/"); ok {
		return group, version
	}
	return "", apiVersion
}

// finish sets the apiVersion of the converted object.
func (c *Conversion) finish(patch *Patch) error {
	if patch.object != nil && patch.err == nil {
		document := jsonpatch.Parse(patch.object)
		document.Add(json.AppendString(nil, c.desired), "apiVersion")
		patch.object = document.Append(nil)
		return nil
	}
	patch.Set(field.NewPath("apiVersion"), c.read().desired)
	return patch.Err()
}
