// Service is the conformance guest for services, written by the SDK: see package
// conformance.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/abi/conformance/testdata/quotes/quotesguest"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/service"
)

type plugin struct{}

func (plugin) Echo(req quotesguest.Values, resp *quotesguest.ValuesValue) error {
	*resp = copied(req)
	return nil
}

func copied(v quotesguest.Values) quotesguest.ValuesValue {
	c := quotesguest.ValuesValue{
		Text: v.Text(), Data: v.Data(), Flag: v.Flag(), Number: v.Number(), Zigzag: v.Zigzag(), Fixed: v.Fixed(), Real: v.Real(),
		Level: v.Level(), List: v.List(), Counts: map[string]int64{},
	}
	for key, n := range v.Counts().All {
		c.Counts[key] = n
	}
	if v.HasInner() {
		inner := copied(v.Inner())
		c.Inner = &inner
	}
	if v.HasMaybe() {
		maybe := v.Maybe()
		c.Maybe = &maybe
	}
	return c
}

func (plugin) Price(req quotesguest.PriceRequest, resp *quotesguest.PriceResponse) error {
	switch req.Currency() {
	case "":
		return errors.New("no currency")
	case "fail":
		return service.NewError(codes.Code(req.Amount()), errors.New("failed"))
	case "trap":
		panic("trap")
	case "found":
		name := req.Pod().Metadata().Name()
		object, _ := service.GetObject(core.ConfigMapFromJSON, "v1/configmaps", "shop", name)
		resp.Note = object.Metadata().Labels().Get("tier")
		resp.Total = 100*listed("", "") + listed("shop", "tier=a")
		return nil
	case "secret":
		service.GetObject(core.SecretFromJSON, "v1/secrets", "shop", "a")
		return nil
	}
	rate, err := quotesguest.Market{}.Rate(&quotesguest.RateRequest{Currency: req.Currency()})
	if err != nil {
		return err
	}
	resp.Total = int64(req.Amount()) * rate.Rate()
	var ok bool
	if resp.Note, ok = req.Pod().Metadata().Labels().Lookup("discount"); !ok {
		resp.Note = "none"
	}
	return nil
}

// listed counts ConfigMaps.
func listed(namespace, selector string) (n int64) {
	for range service.ListObjects(core.ConfigMapFromJSON, "v1/configmaps", namespace, selector) {
		n++
	}
	return n
}

func (plugin) Choose(req quotesguest.ChooseRequest, resp *quotesguest.ChooseResponse) error {
	for _, pod := range req.Pods() {
		if pod.Spec().NodeName() == req.Node() {
			resp.Pod = pod
			return nil
		}
	}
	resp.Text = req.Texts().Data().Get("none")
	return nil
}

func init() { quotesguest.RegisterQuotes(plugin{}) }

func main() {}
