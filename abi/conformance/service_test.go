package conformance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/abi/conformance/testdata/quotes"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
)

// market answers the guest service.
type market struct{ cases ServiceCases }

func (m market) Rate(_ context.Context, req *quotes.RateRequest) (*quotes.RateResponse, error) {
	rate, ok := m.cases.Rates[req.Currency]
	if !ok {
		return nil, fmt.Errorf("no rate of %s", req.Currency)
	}
	if rate.Code != codes.OK {
		return nil, fmt.Errorf("no %w", service.Errorf(rate.Code, "rate of %s", req.Currency))
	}
	return &quotes.RateResponse{Rate: rate.Rate, Pad: strings.Repeat("x", rate.Pad)}, nil
}

func TestService(t *testing.T) { run(t, "service", onCases(serviceCases)) }

func serviceCases(t *testing.T, rt *host.Runtime, guest string, s *Suite) {
	module, err := os.ReadFile(guest)
	if err != nil {
		t.Fatal(err)
	}
	about, err := host.Inspect(module)
	if err != nil {
		t.Fatal(err)
	}
	if about.Custom(abi.SchemaSection) == nil { // The guest in C does not have it from its compiler.
		if module, err = metadata.AddSection(module, abi.SchemaSection, quotes.Schema()); err != nil {
			t.Fatal(err)
		}
	}
	cases := s.Service
	p, err := quotes.LoadQuotes(t.Context(), rt, service.Config{Config: host.Config{
		Name: "guest", Module: host.ModuleConfig{Bytes: module}, Grants: []string{"rates"}, Limits: host.Limits{Instances: 1},
	}, Cluster: lookups(t, s), Objects: []host.ObjectGrant{{Resource: "v1/configmaps"}}}, market{cases})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	for _, c := range cases.Cases {
		t.Run(c.Name, func(t *testing.T) {
			switch c.Method {
			case "Echo":
				ask(t, p.Echo, c, func(*quotes.Values) {})
			case "Price":
				ask(t, p.Price, c, func(*quotes.PriceRequest) {})
			case "Choose":
				ask(t, p.Choose, c, func(req *quotes.ChooseRequest) {
					if c.Pad > 0 {
						req.Texts.Annotations = map[string]string{"pad": strings.Repeat("x", c.Pad)}
					}
				})
			default:
				t.Fatalf("there is no method %s", c.Method)
			}
		})
	}
}

// ask calls a method as a case has it. prepare changes the request.
func ask[Req, Resp any](t *testing.T, method func(context.Context, *Req) (*Resp, error), c ServiceCase, prepare func(*Req)) {
	req, want := new(Req), new(Resp)
	if err := json.Unmarshal(c.Request, req); err != nil {
		t.Fatal(err)
	}
	prepare(req)
	got, err := method(t.Context(), req)
	switch {
	case c.Traps:
		if !errors.As(err, new(*host.TrapError)) {
			t.Errorf("got %v, %v, want a trap", got, err)
		}
	case c.Error != "":
		status, code := new(host.StatusError), cmp.Or(c.Code, codes.Unknown)
		if !errors.As(err, &status) || status.Reason != c.Error || service.CodeOf(err) != code {
			t.Errorf("got %v, %v with the code %s, want the error %s with the code %s", got, err, service.CodeOf(err), c.Error, code)
		}
	case err != nil:
		t.Error(err)
	default:
		if err := json.Unmarshal(c.Want, want); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("response (-want +got):\n%s", diff)
		}
	}
}
