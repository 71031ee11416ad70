// Bindgen writes typed views of Kubernetes objects for guests: Go code that reads
// the fields of a message where they lie, in protobuf or in JSON.
//
//	go run github.com/kubewasm/kubewasm/guest/bindgen k8s.io/api/apps/v1/generated.proto
//
// writes the views of apps/v1 into the current directory. The argument is a .proto
// file as another would import it: it is looked for in the directories that -I
// names, and beside the Go package of the same path. So whatever module the
// current one requires can be named.
//
// Of a CustomResourceDefinition,
//
//	go run github.com/kubewasm/kubewasm/guest/bindgen crontabs.yaml
//
// it writes views of the objects' JSON, by the schema of the version that is
// stored: a type for each object with properties, named after the fields on the
// way to it. Objects with the same properties have one type, named after the first
// of them: in Argo's Rollout the containers, the initContainers and the
// ephemeralContainers do. Two properties that would have the same accessor, as
// jwksUri and jwks_uri in Istio, have JwksUri and Jwks_uri. What a schema leaves
// open is the JSON itself: fields that are preserved though they are unknown,
// embedded objects, lists in lists.
//
// Messages of other .proto files are read by the views of other packages. Bindgen
// knows those of this SDK; -import names the rest.
package main

//go:generate go run . -o testdata/crontab testdata/crontab/crontabs.yaml
//go:generate go run . -o testdata/kinds -I testdata/kinds kinds.proto
