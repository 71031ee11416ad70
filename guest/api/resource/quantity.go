package resource

import (
	"github.com/kubewasm/kubewasm/guest/view"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Quantity is an amount of something.
type Quantity struct{ text string }

func (q Quantity) String() string { return q.text }

// Read reads a Quantity. It is for generated code.
func Read(v view.Value) Quantity {
	if v.JSON {
		return Quantity{json.Value(v.Raw).String()}
	}
	_, text := v.Field(1)
	return Quantity{v.Text(text)}
}
