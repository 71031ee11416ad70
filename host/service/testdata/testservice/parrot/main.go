// The plugin does what the request's field first says, and repeats what it has seen.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice/guest"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

type plugin struct{ guest.Test }

// Echo does what the script says.
func (plugin) Echo(req guest.Message, resp *guest.MessageValue) error {
	s := parrot.Parse(req.First())
	change := parrot.Change(s.ID, parrot.OfService(s))
	var values []string
	values = parrot.With(values, req.Text())
	for _, text := range req.Texts() {
		values = parrot.With(values, text)
	}
	values = parrot.With(values, string(req.Data()))
	if req.HasPod() {
		for c := range req.Pod().Spec().AllContainers() {
			for _, e := range c.Env() {
				values = parrot.With(values, e.Value())
			}
		}
		req.Pod().Metadata().Annotations().All(func(_, value string) bool {
			values = parrot.With(values, value)
			return true
		})
	}
	failed := ""
	for i, op := range s.Ops {
		text := op.Text(values)
		switch op.Do {
		case "ask":
			if i == len(s.Ops)-1 && change == "skip" {
				continue
			}
			// The answer may be masked in a replay: only its length counts.
			answer, err := guest.Host{}.Ask(&guest.MessageValue{Text: text, I32: int32(op.Value)})
			if err == nil {
				values = parrot.With(values, answer.Text())
			}
		case "text":
			resp.Text = "seen " + text
		case "texts":
			resp.Texts = append(resp.Texts, text)
		case "bytes":
			resp.Data = []byte(text)
		case "log":
			log.Info("seen", "value", text)
		case "print":
			fmt.Println("seen", text)
		case "error":
			failed = "failed: " + text
		case "exit":
			fmt.Println("seen", text)
			os.Exit(1)
		case "trap":
			panic(text)
		}
	}
	switch change {
	case "verdict":
		failed = map[bool]string{true: "failed"}[failed == ""]
	case "reason":
		failed = "another reason, " + failed
	case "text":
		resp.Text = "another one, " + resp.Text
	case "log":
		log.Info("another line")
	}
	if failed != "" {
		return errors.New(failed)
	}
	return nil
}

func init() { guest.RegisterTest(plugin{}) }

func main() {}
