// The guest adds numbers, and reads a label of a Pod.
package main

import "github.com/kubewasm/kubewasm/internal/bench/measure/measureguest"

type plugin struct{}

func (plugin) Sum(req measureguest.SumRequest, resp *measureguest.SumResponse) error {
	resp.Sum = float64(req.A()) + float64(req.B()) + float64(req.C()) + req.E()
	if req.D() {
		resp.Sum++
	}
	return nil
}

func (plugin) Zone(req measureguest.ZoneRequest, resp *measureguest.ZoneResponse) error {
	resp.Zone = req.Pod().Metadata().Labels().Get("zone")
	return nil
}

// Rank reads each field of each server, and an entry of each map.
func (plugin) Rank(req measureguest.RankRequest, resp *measureguest.RankResponse) error {
	servers := req.Servers()
	scores := make([]float64, 0, len(servers))
	for _, s := range servers {
		score := float64(len(s.Name())+len(s.Zone())+len(s.Model())) - float64(s.Waiting()+s.Running()) + float64(s.Slots())
		score += float64(s.Tokens()+s.Served()) - float64(s.Failed()) + s.Cache() - s.Load() - s.Latency() + float64(s.Priority())
		score += float64(s.Started()) - s.Cost() + float64(s.Devices()) + float64(s.Memory())
		if !s.Ready() || s.Draining() {
			score = -1
		}
		if s.Preferred() {
			score *= 2
		}
		score += s.Metrics().Get("kv_cache")
		if s.Labels().Get("pool") == "batch" {
			score /= 2
		}
		scores = append(scores, score)
	}
	resp.Scores = scores
	return nil
}

func init() { measureguest.RegisterMeasure(plugin{}) }

func main() {}
