package host

// UsePlainMemory makes rt do without the operating system's help, as on one that
// has none.
func (rt *Runtime) UsePlainMemory() { rt.memory.Plain = true }
