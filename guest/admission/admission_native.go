//go:build !wasip1

package admission

import "github.com/kubewasm/kubewasm/internal/nativehost"

// Natively there is no host: a Request is empty unless a test filled it.

func fetchRequest() []byte        { return nil }
func fetchObject() []byte         { return nil }
func fetchOldObject() []byte      { return nil }
func fetchOptions() []byte        { return nil }
func fetchObjectProto() []byte    { return nil }
func fetchOldObjectProto() []byte { return nil }

func fetchDesiredAPIVersion() []byte { return nil }

func init() {
	nativehost.Guests.Convert = func(converter any, object []byte, desired string) ([]byte, error) {
		c := &Conversion{fetched: true}
		c.fill(object, desired)
		patch := NewPatch(c.Object())
		if err := converter.(Converter).Convert(c, patch); err != nil {
			return nil, err
		}
		if err := c.finish(patch); err != nil {
			return nil, err
		}
		return patch.Object(), nil
	}
}
