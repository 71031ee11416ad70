package cri_test

import (
	"context"
	"fmt"
	"log"

	"k8s.io/cri-client/pkg/fake"

	"github.com/kubewasm/kubewasm/hooks/runtime/cri"
)

// A runtime that runs nothing is asked what it runs.
func Example() {
	endpoint, err := fake.GenerateEndpoint()
	if err != nil {
		log.Fatal(err)
	}
	runtime := fake.NewFakeRemoteRuntime()
	if err := runtime.Start(endpoint); err != nil {
		log.Fatal(err)
	}
	defer runtime.Stop()

	discovery, err := cri.New(cri.Config{Endpoint: endpoint}) // unix:///run/containerd/containerd.sock by default.
	if err != nil {
		log.Fatal(err)
	}
	defer discovery.Close()
	pods, err := discovery.Pods(context.Background())
	fmt.Println(len(pods), err)
	// Output: 0 <nil>
}
