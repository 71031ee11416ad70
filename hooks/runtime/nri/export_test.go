package nri

// Waiting returns the number of requests of the runtime that have no answer yet.
func (p *Plugin) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.connected == nil {
		return 0
	}
	return p.connected.traffic.waiting()
}
