package storage_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/storage"
)

func Example() {
	class := storage.StorageClassFromJSON([]byte(`{"provisioner": "csi.example.com", "parameters": {"type": "fast"}, "volumeBindingMode": "WaitForFirstConsumer"}`))
	fmt.Println(class.Provisioner(), class.Parameters().Get("type"), class.VolumeBindingMode() == storage.VolumeBindingWaitForFirstConsumer)
	// Output: csi.example.com fast true
}
