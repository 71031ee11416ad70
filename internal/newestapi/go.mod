module github.com/kubewasm/kubewasm/internal/newestapi

go 1.26.0

replace github.com/kubewasm/kubewasm => ../..

tool github.com/kubewasm/kubewasm/cmd/kubewasm

require (
	github.com/kubewasm/kubewasm v0.0.0-00010101000000-000000000000
	k8s.io/api v0.37.1
	k8s.io/apimachinery v0.37.1
)
