// Reserving is a plugin of the new version that calls a host method of that version.
package main

import "github.com/kubewasm/kubewasm/host/service/testdata/evolution/evolved/guest"

type plugin struct{}

func (plugin) Check(order guest.Order, verdict *guest.Verdict) error {
	stock, err := guest.Stock{}.Reserve(&guest.CountRequest{Item: order.Item()})
	verdict.Accepted = stock.Count() >= order.Amount()
	return err
}

func (plugin) Cancel(guest.Order, *guest.Verdict) error { return nil }

func init() { guest.RegisterOrders(plugin{}) }

func main() {}
