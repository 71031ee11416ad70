//go:build !wasip1

package admission

// There is no host natively: a Request that no test filled is empty.

func fetchRequest() []byte        { return nil }
func fetchObject() []byte         { return nil }
func fetchOldObject() []byte      { return nil }
func fetchOptions() []byte        { return nil }
func fetchObjectProto() []byte    { return nil }
func fetchOldObjectProto() []byte { return nil }
