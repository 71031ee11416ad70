package host

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Source is where a module's bytes come from. Implementations are safe for use
// by several goroutines.
type Source interface {
	// Fetch returns the module. The caller does not change the bytes.
	Fetch(ctx context.Context) ([]byte, error)
	// String names the source in messages.
	String() string
}

// MaxModuleBytes is the size of the largest module that a Source hands over.
const MaxModuleBytes = 256 << 20

// Bytes returns the source of a module that is at hand already.
func Bytes(module []byte) Source { return bytesSource(module) }

type bytesSource []byte

func (s bytesSource) Fetch(context.Context) ([]byte, error) {
	if len(s) > MaxModuleBytes {
		return nil, fmt.Errorf("module has %d bytes, more than %d", len(s), MaxModuleBytes)
	}
	return s, nil
}

func (s bytesSource) String() string { return fmt.Sprintf("%d bytes", len(s)) }

// File returns the source of a module in a file, which is read anew for each
// load.
func File(path string) Source { return fileSource(path) }

type fileSource string

func (s fileSource) Fetch(context.Context) ([]byte, error) {
	f, err := os.Open(string(s))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The size is not trusted: a file may grow, and a device has none.
	module, err := io.ReadAll(io.LimitReader(f, MaxModuleBytes+1))
	if err != nil {
		return nil, err
	}
	if len(module) > MaxModuleBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", s, MaxModuleBytes)
	}
	return module, nil
}

func (s fileSource) String() string { return string(s) }
