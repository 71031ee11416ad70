package serviceschema

import (
	"bytes"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// quantity is the message of quantities.
const quantity = "k8s.io.apimachinery.pkg.api.resource.Quantity"

var errQuantity = errors.New("it is no quantity of at most 64 bytes with an exponent of at most 2 digits")

// CheckQuantity refuses encoded quantities from guests that package resource would read for
// minutes, as 1e-2147483647. It accepts others that are no quantities.
func CheckQuantity(raw []byte) error {
	for len(raw) > 0 {
		number, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(number, typ, raw); n < 0 {
			return protowire.ParseError(n)
		}
		text := raw[:n]
		raw = raw[n:]
		if typ == protowire.BytesType {
			text, _ = protowire.ConsumeBytes(text)
		}
		digits := 0
		if i := bytes.IndexAny(text, "eE"); i >= 0 {
			digits = len(bytes.TrimLeft(text[i+1:], "+-"))
		}
		if len(text) > 64 || digits > 2 {
			return errQuantity
		}
	}
	return nil
}
