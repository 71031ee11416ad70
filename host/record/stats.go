package record

import "errors"

// Stats are the numbers of a recorder since it was made.
type Stats struct {
	// Recorded is the number of calls that were written, Dropped of those that found no room
	// in the queue, or on the disk.
	Recorded, Dropped uint64
	// Queued is the number of bytes in memory, of calls that run or wait.
	Queued int64
	// Bytes is the number of bytes that were written, Segments of files that were begun,
	// Removed of files that were removed for the limits of size and age.
	Bytes, Segments, Removed uint64
	// Failures is the number of writes that failed, and Err the error of the last one.
	Failures uint64
	Err      error
}

// Plus returns the sum of the numbers of two recorders.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		Recorded: s.Recorded + t.Recorded, Dropped: s.Dropped + t.Dropped, Queued: s.Queued + t.Queued, Bytes: s.Bytes + t.Bytes, Segments: s.Segments + t.Segments,
		Removed: s.Removed + t.Removed, Failures: s.Failures + t.Failures, Err: errors.Join(s.Err, t.Err),
	}
}
