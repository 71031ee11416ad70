// Command service is the plugin of an extension point of TestOnePluginForAllComponents.
package main

import "github.com/kubewasm/kubewasm/host/service/testdata/testservice/guest"

type point struct {
	guest.Test
	Label string `json:"label"`
}

// Echo returns the label.
func (p *point) Echo(_ guest.Message, resp *guest.MessageValue) error {
	resp.Text = p.Label
	return nil
}

func init() { guest.RegisterTest(&point{}) }

func main() {}
