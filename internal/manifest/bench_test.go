package manifest_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/kubewasm/kubewasm/internal/manifest"
)

// documents returns n Pods in YAML.
func documents(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Pod
metadata:
  name: web-%d
  namespace: shop
  labels:
    app: web
    owner: team
spec:
  containers:
  - name: web
    image: registry.example.com/shop/web:1.2
    ports:
    - containerPort: 8080
    resources:
      requests:
        cpu: 100m
        memory: 128Mi
    env:
    - name: A
      value: b
`, i)
	}
	return b.Bytes()
}

// list returns a List of n Pods in JSON.
func list(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"apiVersion":"v1","kind":"List","items":[`)
	for i := range n {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","namespace":"shop","labels":{"app":"web","owner":"team"}},"spec":{"containers":[{"name":"web","image":"registry.example.com/shop/web:1.2","ports":[{"containerPort":8080}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"}},"env":[{"name":"A","value":"b"}]}]}}`, i)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// BenchmarkYAML reads 1,000 Pods in documents of YAML.
func BenchmarkYAML(b *testing.B) {
	d := documents(1000)
	b.ResetTimer()
	for b.Loop() {
		if o, err := manifest.Read(d); err != nil || len(o.All) != 1000 {
			b.Fatal(err)
		}
	}
}

// BenchmarkList reads 1,000 Pods in a List in JSON.
func BenchmarkList(b *testing.B) {
	d := list(1000)
	b.ResetTimer()
	for b.Loop() {
		if o, err := manifest.Read(d); err != nil || len(o.All) != 1000 {
			b.Fatal(err)
		}
	}
}
