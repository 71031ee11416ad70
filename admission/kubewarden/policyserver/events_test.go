package policyserver_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
	"github.com/kubewasm/kubewasm/internal/testkit/logged"
)

// TestChangesAreLogged holds the lines about policies to the table of docs/operating.md.
func TestChangesAreLogged(t *testing.T) {
	log := new(logged.Log)
	s := newServer(t, func(cfg *policyserver.Config) { cfg.Logger = log.Logger() })
	s.modules.put("registry://good", s.modules.byURL["registry://policy"])
	_ = s.apply(`{"p": {"module": "registry://good"}, "q": {"module": "registry://broken"}}`)
	_ = s.apply(`{"p": {"module": "registry://broken"}, "q": {"module": "registry://broken"}}`)
	log.Check(t, map[string]int{
		"loaded the module": 1, "policy cannot be loaded: its requests are rejected": 1, "policy cannot be loaded: the version before it serves": 1,
	})
}
