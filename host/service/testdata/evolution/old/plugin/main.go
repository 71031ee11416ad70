// Plugin checks orders, and is of the old version.
package main

import (
	"strconv"

	"github.com/kubewasm/kubewasm/host/service/testdata/evolution/old/guest"
)

type plugin struct{}

// Check accepts an order that the host has in stock.
func (plugin) Check(order guest.Order, verdict *guest.Verdict) error {
	stock, err := guest.Stock{}.Count(&guest.CountRequest{Item: order.Item()})
	if err != nil {
		return err
	}
	verdict.Accepted = stock.Count() >= order.Amount()
	verdict.Reason = order.Pod().Metadata().Name() + " wants " + strconv.Itoa(int(order.Amount())) + " of " + strconv.Itoa(int(stock.Count())) + " " + order.Item()
	verdict.Priority = order.Priority()
	return nil
}

func init() { guest.RegisterOrders(plugin{}) }

func main() {}
