module github.com/kubewasm/kubewasm/internal/bench/peers

go 1.26.0

replace github.com/kubewasm/kubewasm => ../../..

require (
	github.com/extism/go-sdk v1.7.1
	github.com/knqyf263/go-plugin v0.9.0
	github.com/kubewasm/kubewasm v0.0.0-00010101000000-000000000000
)

require (
	github.com/dylibso/observe-sdk/go v0.0.0-20240819160327-2d926c5d788a // indirect
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/gobwas/glob v0.2.3 // indirect
	github.com/ianlancetaylor/demangle v0.0.0-20240805132620-81f5be970eca // indirect
	github.com/tetratelabs/wabin v0.0.0-20230304001439-f6f874872834 // indirect
	github.com/tetratelabs/wazero v1.12.0 // indirect
	go.opentelemetry.io/proto/otlp v1.3.1 // indirect
	golang.org/x/sys v0.47.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
