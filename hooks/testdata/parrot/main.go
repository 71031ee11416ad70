// The parrot does what the Pod's label "script" says, and repeats what it has seen.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

type plugin struct{}

func (plugin) Decide(req *hooks.Request, d *hooks.Decision) error {
	s := parrot.Parse(req.PodLabels().Get("script"))
	change := parrot.Change(s.ID, parrot.OfHook(s))
	var values []string
	for _, list := range []hooks.Strings{req.ContainerEnvs(), req.PodAnnotations(), req.ContainerAnnotations()} {
		for _, value := range list.All() {
			values = parrot.With(values, value)
		}
	}
	shares, note, failed := int64(100), "", ""
	for _, op := range s.Ops {
		text := op.Text(values)
		switch op.Do {
		case "annotation":
			note = "seen " + text
		case "env":
			d.SetContainerEnv("A", text)
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
	case "shares":
		shares++
	case "annotation":
		note = "another one, " + note
	case "log":
		log.Info("another line")
	}
	d.SetCPUShares(shares)
	d.SetContainerAnnotation("a", note)
	if failed != "" {
		return errors.New(failed)
	}
	return nil
}

func init() { hooks.Register(plugin{}) }

func main() {}
