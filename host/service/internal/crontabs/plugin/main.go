// Plugin reads custom resources.
package main

import (
	"github.com/kubewasm/kubewasm/host/service/internal/crontabs/guest"
	"github.com/kubewasm/kubewasm/internal/crontab"
)

type plugin struct {
	Schedule string `json:"schedule"`
}

// Due returns the CronTabs of the schedule that are not suspended.
func (p *plugin) Due(req guest.DueRequest, resp *guest.DueResponse) error {
	for _, tab := range append([]crontab.CronTab{req.First()}, req.Others()...) {
		if tab.Spec().Schedule() != p.Schedule || tab.Spec().Suspend() {
			continue
		}
		if len(resp.Due) == 0 && len(tab.Spec().Containers()) > 0 {
			resp.Image = tab.Metadata().Name() + " of " + tab.Metadata().Labels().Get("team") + " runs " + tab.Spec().Containers()[0].Image() +
				" on " + tab.Spec().Port().String() + " since " + tab.Spec().Since().String() + " for " + tab.Spec().Labels().Get("tenant")
		}
		resp.Due = append(resp.Due, tab)
	}
	return nil
}

func init() { guest.RegisterCronTabs(&plugin{}) }

func main() {}
