package webhook

import "time"

// SetSleep sets what waits for Config.DrainDelay in place of time.Sleep.
func (s *Server) SetSleep(sleep func(time.Duration)) { s.server.Sleep = sleep }
