package recording

import "runtime"

// flushForTest lets the goroutine that writes go on.
func (r *Recorder) flushForTest() { runtime.Gosched() }
