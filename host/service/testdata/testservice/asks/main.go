// Command asks asks the host about the text of its configuration, and returns the answer.
package main

import "github.com/kubewasm/kubewasm/host/service/testdata/testservice/guest"

type plugin struct {
	guest.Test
	Text string `json:"text"`
}

// AskHost asks the host.
func (p *plugin) AskHost(req guest.Message, resp *guest.MessageValue) error {
	answer, err := guest.Host{}.Ask(&guest.MessageValue{Text: p.Text})
	if err != nil {
		return err
	}
	resp.Text = answer.Text() + " of " + req.Pod().Metadata().Labels().Get("app")
	return nil
}

func init() { guest.RegisterTest(&plugin{}) }

func main() {}
