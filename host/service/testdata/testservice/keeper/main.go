// The plugin keeps texts of requests and returns them later.
package main

import "github.com/kubewasm/kubewasm/host/service/testdata/testservice/guest"

type keeper struct {
	guest.Test
	kept []string
}

// Echo returns the texts of all requests so far.
func (k *keeper) Echo(req guest.Message, resp *guest.MessageValue) error {
	k.kept = append(k.kept, req.Text())
	k.kept = append(k.kept, req.Texts()...)
	for _, e := range req.List() {
		k.kept = append(k.kept, e.Inner().Text(), string(e.Data()))
	}
	for key, value := range req.Labels().All {
		k.kept = append(k.kept, key, value)
	}
	resp.Texts = k.kept
	return nil
}

func init() { guest.RegisterTest(&keeper{}) }

func main() {}
