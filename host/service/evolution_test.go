package service_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/evolution/broken"
	"github.com/kubewasm/kubewasm/host/service/testdata/evolution/evolved"
	"github.com/kubewasm/kubewasm/host/service/testdata/evolution/old"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// oldStock, newStock and brokenStock are the host services of the three versions.
type oldStock struct{}

func (oldStock) Count(_ context.Context, req *old.CountRequest) (*old.CountResponse, error) {
	return &old.CountResponse{Count: int32(len(req.Item))}, nil
}

type newStock struct{}

func (newStock) Count(_ context.Context, req *evolved.CountRequest) (*evolved.CountResponse, error) {
	return &evolved.CountResponse{Count: int32(len(req.Item)), Coming: int32(10 * len(req.Warehouse))}, nil
}

func (newStock) Reserve(_ context.Context, req *evolved.CountRequest) (*evolved.CountResponse, error) {
	return &evolved.CountResponse{Count: int32(len(req.Item))}, nil
}

type brokenStock struct{}

func (brokenStock) Count(context.Context, *broken.CountRequest) (*broken.CountResponse, error) {
	return &broken.CountResponse{}, nil
}

// TestEvolution builds plugins of an old and a new version of an extension point, and of one
// that breaks it, and loads each into the hosts of all versions.
func TestEvolution(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds four guests")
	}
	const versions = "testdata/evolution"
	if err := guestbuild.TrackSources(versions); err != nil {
		t.Fatal(err)
	}
	rt := runtime(t)
	guests := map[string]service.Config{}
	for _, name := range []string{"old/plugin", "evolved/plugin", "evolved/reserving", "broken/plugin"} {
		file, err := guestbuild.Build(t.Context(), filepath.Join(versions, name))
		if err != nil {
			t.Fatal(err)
		}
		module, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		guests[name] = service.Config{Config: host.Config{Name: name, Module: host.ModuleConfig{Bytes: module}}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	ctx := t.Context()

	t.Run("an old guest runs on an old host", func(t *testing.T) {
		p, err := old.LoadOrders(ctx, rt, guests["old/plugin"], oldStock{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Check(ctx, &old.Order{Item: "nut", Amount: 4, Priority: old.PriorityHigh, Pod: pod})
		if diff := cmp.Diff(&old.Verdict{Reason: "web wants 4 of 3 nut", Priority: old.PriorityHigh}, got); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	})
	t.Run("an old guest runs on a new host", func(t *testing.T) {
		p, err := evolved.LoadOrders(ctx, rt, guests["old/plugin"], newStock{})
		if err != nil {
			t.Fatal(err)
		}
		order := &evolved.Order{
			Item: "nut", Amount: 3, Priority: evolved.PriorityUrgent, Pod: pod,
			Customer: &evolved.Customer{Name: "ann"}, Tags: []string{"a"},
		}
		got, err := p.Check(ctx, order)
		if diff := cmp.Diff(&evolved.Verdict{Accepted: true, Reason: "web wants 3 of 3 nut", Priority: evolved.PriorityUrgent}, got); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
		if _, err := p.Cancel(ctx, order); !errors.Is(err, service.ErrUnimplemented) {
			t.Errorf("Cancel: got %v, want ErrUnimplemented", err)
		}
	})
	t.Run("a new guest runs on an old host", func(t *testing.T) {
		p, err := old.LoadOrders(ctx, rt, guests["evolved/plugin"], oldStock{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Check(ctx, &old.Order{Item: "nut", Amount: 4, Pod: pod})
		if diff := cmp.Diff(&old.Verdict{Reason: "web wants 4 of 3+0 nut", Priority: 2}, got); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	})
	t.Run("a new guest runs on a new host", func(t *testing.T) {
		p, err := evolved.LoadOrders(ctx, rt, guests["evolved/plugin"], newStock{})
		if err != nil {
			t.Fatal(err)
		}
		order := &evolved.Order{Item: "nut", Amount: 4, Pod: pod, Customer: &evolved.Customer{Name: "ann"}, Tags: []string{"a", "b"}}
		got, err := p.Check(ctx, order)
		want := &evolved.Verdict{Accepted: true, Reason: "web wants 4 of 3+50 nut", Priority: evolved.PriorityUrgent, Greeting: "hello ann a,b"}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
		if got, err := p.Cancel(ctx, order); err != nil || got.Reason != "cancelled nut" {
			t.Errorf("Cancel: got %v, %v", got, err)
		}
		if p, err = evolved.LoadOrders(ctx, rt, guests["evolved/reserving"], newStock{}); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Check(ctx, order); err != nil || got.Accepted {
			t.Errorf("Check by Reserve: got %v, %v", got, err)
		}
	})

	load := map[string]func(guest string) error{
		"old": func(guest string) error { _, err := old.LoadOrders(ctx, rt, guests[guest], oldStock{}); return err },
		"new": func(guest string) error { _, err := evolved.LoadOrders(ctx, rt, guests[guest], newStock{}); return err },
		"broken": func(guest string) error {
			_, err := broken.LoadOrders(ctx, rt, guests[guest], brokenStock{})
			return err
		},
	}
	// brokenGuest is how a broken guest differs, brokenHost how a broken host does.
	brokenGuest := []string{
		"kubewasm.evolution.v1.Order.amount is field 7 of the guest and field 2 of the host",
		"field 1 of kubewasm.evolution.v1.Order is bytes item in the guest and string item in the host",
		"the guest has k8s.io.api.core.v1.Node where the host has k8s.io.api.core.v1.Pod",
		"field 2 of kubewasm.evolution.v1.Verdict is sint64 score in the guest and string reason in the host",
		"the module does not fit the service kubewasm.evolution.v1.Stock of this host: field 1 of kubewasm.evolution.v1.CountResponse is repeated int32 count in the guest and int32 count in the host",
	}
	brokenHost := []string{
		"kubewasm.evolution.v1.Order.amount is field 2 of the guest and field 7 of the host",
		"field 1 of kubewasm.evolution.v1.Order is string item in the guest and bytes item in the host",
		"the guest has k8s.io.api.core.v1.Pod where the host has k8s.io.api.core.v1.Node",
		"field 2 of kubewasm.evolution.v1.Verdict is string reason in the guest and sint64 score in the host",
		"the module does not fit the service kubewasm.evolution.v1.Stock of this host: field 1 of kubewasm.evolution.v1.CountResponse is int32 count in the guest and repeated int32 count in the host",
	}
	for _, test := range []struct {
		guest, host string
		want        []string // Parts of the error, none if it is loaded.
	}{
		{"broken/plugin", "broken", nil},
		{"broken/plugin", "old", brokenGuest},
		{"broken/plugin", "new", brokenGuest},
		{"old/plugin", "broken", brokenHost},
		{"evolved/plugin", "broken", brokenHost},
		{"evolved/reserving", "old", []string{"import kubewasm.evolution.v1.Stock.Reserve is not provided by this host"}},
	} {
		t.Run(test.guest+" on the "+test.host+" host", func(t *testing.T) {
			err := load[test.host](test.guest)
			if len(test.want) == 0 && err != nil {
				t.Error(err)
			}
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %s", err, want)
				}
			}
		})
	}
}
