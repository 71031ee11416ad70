package codec

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// ErrMalformed is wrapped by the errors of the packages below codec for bytes that are not the
// expected message: cut off, with a known field of the wrong wire type, or a string that is not
// UTF-8.
var ErrMalformed = wire.ErrMalformed

// Encode returns the bytes of an object of any kind for a guest, without managedFields. object is
// not changed, and the bytes belong to the caller. The error is for an object that is not one of
// k8s.io/api.
func Encode(object metav1.Object) ([]byte, error) { return objects.Encode(object) }
