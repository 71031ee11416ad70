package sched

// Shared is what every plugin is made of.
type Shared interface{ shared() *plugin }

// Crossings returns how many objects the guest of p has fetched.
func Crossings(p Plugin) uint64 { return p.(Shared).shared().crossings.Load() }

func (p *plugin) shared() *plugin { return p }
