// Plugin reads custom resources.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/service"
	"github.com/kubewasm/kubewasm/host/service/internal/crontabs/guest"
	"github.com/kubewasm/kubewasm/internal/crontab"
)

type plugin struct {
	Schedule string `json:"schedule"`
	// Teams reports whether a CronTab is due only if its team has a Team that is not paused.
	Teams bool `json:"teams"`
}

// Due returns the CronTabs of the schedule that are not suspended.
func (p *plugin) Due(req guest.DueRequest, resp *guest.DueResponse) error {
	for _, tab := range append([]crontab.CronTab{req.First()}, req.Others()...) {
		if tab.Spec().Schedule() != p.Schedule || tab.Spec().Suspend() {
			continue
		}
		if p.Teams {
			team, ok := service.GetObject(meta.PartialObjectMetadataFromJSON, "example.com/v1/teams", "", tab.Metadata().Labels().Get("team"))
			if !ok || team.Metadata().Labels().Get("paused") != "" {
				continue
			}
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
