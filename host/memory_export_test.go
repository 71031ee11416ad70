package host

import "testing"

// Remote reports whether guests are in other processes.
func Remote() bool {
	_, process, err := debugs()
	return err == nil && process
}

// InProcess skips a test of something that lies elsewhere if guests are in other processes.
func InProcess(t testing.TB, what string) {
	t.Helper()
	if Remote() {
		t.Skip("with isolation by process ", what)
	}
}

// UsePlainMemory makes rt do without the operating system's help, as on one that
// has none.
func (rt *Runtime) UsePlainMemory() { rt.memory.Plain = true }

// Fill has fill write to the guest's memory.
func (i DialectInstance) Fill(fill func(memory []byte)) {
	memory := i.Memory()
	if fill(memory); i.remote != nil {
		i.put(0, memory)
	}
}

// Memory returns the guest's memory, or a copy if that is in another process.
func (i DialectInstance) Memory() []byte {
	memory, _ := i.memory.Read(0, i.memory.Size())
	return memory
}

// SecretSource is secretKey.
var SecretSource = secretKey
