// Command looks looks up what the text of a request names: a line for each question.
package main

import (
	"errors"
	"strings"

	"github.com/kubewasm/kubewasm/guest/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice/guest"
)

type plugin struct {
	guest.Test
	Early string `json:"early"`
}

// Configure looks up what the configuration names.
func (p *plugin) Configure() error {
	if p.Early != "" {
		_, err := answer(strings.Fields(p.Early))
		return err
	}
	return nil
}

// Echo answers "get RESOURCE NAMESPACE NAME" by an object, "list RESOURCE NAMESPACE SELECTOR" by the
// number of objects and the last one, and "ask TEXT" by what the host says. "-" is an empty word.
func (p *plugin) Echo(req guest.Message, resp *guest.MessageValue) error {
	for line := range strings.Lines(req.Text()) {
		text, err := answer(strings.Fields(line))
		if err != nil {
			return err
		}
		resp.Texts = append(resp.Texts, text)
	}
	return nil
}

func answer(words []string) (string, error) {
	for i := range words {
		words[i] = strings.TrimPrefix(words[i], "-")
	}
	raw := func(b []byte) []byte { return b }
	switch words[0] {
	case "get":
		b, ok := service.GetObject(raw, words[1], words[2], words[3])
		if !ok {
			return "none", nil
		}
		return string(b), nil
	case "list":
		n, last := 0, ""
		for b := range service.ListObjects(raw, words[1], words[2], words[3]) {
			n, last = n+1, string(b)
		}
		return strings.Repeat("+", n) + last, nil
	case "ask":
		got, err := guest.Host{}.Ask(&guest.MessageValue{Text: words[1]})
		if err != nil {
			return "", err
		}
		return got.Text(), nil
	}
	return "", errors.New("no question")
}

func init() { guest.RegisterTest(&plugin{}) }

func main() {}
