// Package quotes is the host side of the extension point that the guest service implements.
package quotes

//go:generate kubewasm gen --host . --output-dir quotesguest quotes.proto
//go:generate kubewasm gen --lang c --package quotes --output-dir ../../c/service quotes.proto
//go:generate kubewasm gen --lang rust --output-dir ../../rust/quotes quotes.proto
//go:generate kubewasm gen --lang as --output-dir ../../assemblyscript/service/assembly/quotes quotes.proto

// Schema returns the encoded FileDescriptorSet of the services.
func Schema() []byte { return []byte(serviceSchema) }
