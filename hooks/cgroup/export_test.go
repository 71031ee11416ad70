package cgroup

// Version is the number of changes so far.
func (s *State) Version() uint64 { return s.version }

var (
	ErrEscapes     = errEscapes
	ErrUnsupported = errUnsupported
	ErrLocked      = errLocked
)
