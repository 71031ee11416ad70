package hooks_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
)

func TestOOMScoresBelowAGuaranteedPods(t *testing.T) {
	for _, tt := range []struct {
		grant, score int64
		reason       string // Empty if it is granted.
	}{
		{0, -997, ""},
		{0, 1000, ""},
		{0, -998, "it is less than -997"},
		{0, -1000, "it is less than -997"},
		{-998, -998, ""},
		{-998, -999, "it is less than -998"},
		{-999, -999, ""},
		{-999, -1000, "it is less than -999"},
		{-1000, -1000, ""},
		{-1000, 0, ""},
	} {
		t.Run(fmt.Sprintf("%d with a grant of %d", tt.score, tt.grant), func(t *testing.T) {
			cfg := plugin(t, "p", scripted)
			cfg.DecisionGrants.OOMScoreAdj = tt.grant
			e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{cfg}})
			d, err := e.Decide(t.Context(), script(map[string]string{"p": fmt.Sprint("oom_score_adj ", tt.score)}))
			if tt.reason == "" {
				if err != nil || *d.Resources.OOMScoreAdj != tt.score {
					t.Errorf("got %v, error %v", d, err)
				}
				return
			}
			var refused *hooks.GrantError
			if !errors.As(err, &refused) || refused.Reason != tt.reason || refused.Field != "oom_score_adj" {
				t.Fatalf("got error %v, want %q", err, tt.reason)
			}
			// What is said to allow it does.
			grants := cfg.DecisionGrants
			grants.Add(refused.Grants)
			if err := grants.Check(&hookmsg.Decision{Resources: &hookmsg.Resources{OOMScoreAdj: &tt.score}}); err != nil {
				t.Errorf("with %v: %v", refused.Grants, err)
			}
		})
	}
	for _, score := range []int64{-1001, -997, 1, 1000} {
		cfg := plugin(t, "p", scripted)
		cfg.DecisionGrants.OOMScoreAdj = score
		_, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{cfg}})
		if want := fmt.Sprintf("oomScoreAdj is %d, want -1000 to -998", score); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a grant of %d: %v", score, err)
		}
	}
}

func TestIdleQOSClasses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		granted bool
		idle    string
		level   abi.Level
		refused bool
	}{
		{"a class", false, "1", abi.LevelQOS, true},
		{"a class, granted", true, "1", abi.LevelQOS, false},
		{"a class that is not", false, "0", abi.LevelQOS, false},
		{"a pod", false, "1", abi.LevelPod, false},
		{"a container", false, "1", abi.LevelContainer, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := plugin(t, "p", scripted)
			cfg.DecisionGrants.IdleQOSClasses = tt.granted
			e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{cfg}})
			req := script(map[string]string{"p": "cpu_idle " + tt.idle})
			req.Level = tt.level
			d, err := e.Decide(t.Context(), req)
			var refused *hooks.GrantError
			switch {
			case tt.refused != errors.As(err, &refused):
				t.Errorf("got error %v", err)
			case tt.refused && !refused.Grants.IdleQOSClasses:
				t.Errorf("it would take %+v", refused.Grants)
			case !tt.refused && (err != nil || d.Resources.CPUIdle == nil):
				t.Errorf("got %+v, error %v", d, err)
			}
		})
	}
}
