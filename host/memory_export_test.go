package host

// UsePlainMemory makes rt do without the operating system's help, as on one that
// has none.
func (rt *Runtime) UsePlainMemory() { rt.memory.Plain = true }

// Memory returns the guest's memory, or a copy if that is in another process.
func (i DialectInstance) Memory() []byte {
	memory, _ := i.memory.Read(0, i.memory.Size())
	return memory
}
