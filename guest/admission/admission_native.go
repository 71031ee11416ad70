//go:build !wasip1

package admission

// Natively there is no host: a Request is empty unless a test filled it.

func fetchRequest() []byte        { return nil }
func fetchObject() []byte         { return nil }
func fetchOldObject() []byte      { return nil }
func fetchOptions() []byte        { return nil }
func fetchObjectProto() []byte    { return nil }
func fetchOldObjectProto() []byte { return nil }

func fetchDesiredAPIVersion() []byte { return nil }
