package clustercache

import "time"

// SetClock has a Cluster that is not used yet take the time from now.
func (c *Cluster) SetClock(now func() time.Time) { c.now = now }
