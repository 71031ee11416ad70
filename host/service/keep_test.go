package service_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// TestTextsOfRequestsMayBeKept has a plugin in Go keep texts of requests of several sizes, whose
// memory later requests would use.
func TestTextsOfRequestsMayBeKept(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds a guest")
	}
	file, err := guestbuild.Build(t.Context(), "testdata/testservice/keeper")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := testservice.LoadTest(t.Context(), runtime(t), service.Config{Config: host.Config{
		Name: "keeper", Module: host.ModuleConfig{Bytes: module}, Limits: host.Limits{Instances: 1},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, n := range []int{1, 3, 2, 4000, 20_000, 5, 20_000} {
		text := func(what string) string { return fmt.Sprint(what, i, strings.Repeat("x", n)) }
		req := &testservice.Message{
			Text: text("text"), Texts: []string{text("a"), text("b")}, Labels: map[string]string{text("key"): text("value")},
			List: []testservice.Message{{Inner: &testservice.Message{Text: text("inner")}}, {Data: []byte(text("data"))}},
		}
		want = append(want, req.Text, req.Texts[0], req.Texts[1], req.List[0].Inner.Text, "", "", string(req.List[1].Data), text("key"), text("value"))
		resp, err := p.Echo(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(want, resp.Texts) {
			t.Fatalf("after request %d the texts that were kept are others", i)
		}
	}
}
