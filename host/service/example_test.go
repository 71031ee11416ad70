package service_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
)

// A component decides by the code of an error. Its tests have a fake, which returns errors with codes
// as a plugin does.
func ExampleCodeOf() {
	var plugin testservice.TestClient = &testservice.TestFake{
		EchoFunc: func(_ context.Context, req *testservice.Message) (*testservice.Message, error) {
			if req.Text == "" {
				return nil, errors.New("no text")
			}
			return nil, service.Errorf(codes.NotFound, "no %s", req.Text)
		},
	}
	for _, text := range []string{"cluster", ""} {
		_, err := plugin.Echo(context.Background(), &testservice.Message{Text: text})
		switch code := service.CodeOf(err); code {
		case codes.NotFound:
			fmt.Println("wait for another event:", err)
		default:
			fmt.Println(code, err)
		}
	}
	// Output:
	// wait for another event: no cluster
	// Unknown no text
}
