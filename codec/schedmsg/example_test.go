package schedmsg_test

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/codec/schedmsg"
)

// A guest nominates a node for a Pod of a group.
func ExampleParseNominations() {
	var pod []byte
	for field, text := range map[protowire.Number]string{1: "shop", 2: "web-0", 3: "node-7"} {
		pod = protowire.AppendTag(pod, field, protowire.BytesType)
		pod = protowire.AppendString(pod, text)
	}
	message := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), pod)

	nominations, err := schedmsg.ParseNominations(message, func(int) {})
	fmt.Println(nominations, err)
	// Output: map[shop/web-0:node-7] <nil>
}
