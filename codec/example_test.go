package codec_test

import (
	"errors"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
)

// An object travels as the protobuf message of its own API.
func ExampleEncode() {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	b, err := codec.Encode(quota)
	if err != nil {
		log.Fatal(err)
	}
	var decoded corev1.ResourceQuota
	if err := decoded.Unmarshal(b); err != nil {
		log.Fatal(err)
	}
	fmt.Println(decoded.Name, len(decoded.ManagedFields))
	// Output: small 0
}

// The messages of guests are not trusted.
func Example() {
	_, err := schedmsg.ParseEvent([]byte{0x0a, 0xff})
	fmt.Println(errors.Is(err, codec.ErrMalformed))
	// Output: true
}
