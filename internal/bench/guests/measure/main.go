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

func init() { measureguest.RegisterMeasure(plugin{}) }

func main() {}
