package main

//go:generate kubewasm gen --output-dir scalerguest --host scaler scaler.proto
//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=./api/... output:crd:dir=manifests
