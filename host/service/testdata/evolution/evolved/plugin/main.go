// Plugin checks and cancels orders, and is of the new version. It calls no host method that the
// old version does not have.
package main

import (
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/host/service/testdata/evolution/evolved/guest"
)

type plugin struct{}

// Check accepts an order that the host has in stock, or will have.
func (plugin) Check(order guest.Order, verdict *guest.Verdict) error {
	stock, err := guest.Stock{}.Count(&guest.CountRequest{Item: order.Item(), Warehouse: "north"})
	if err != nil {
		return err
	}
	verdict.Accepted = stock.Count()+stock.Coming() >= order.Amount()
	verdict.Reason = order.Pod().Metadata().Name() + " wants " + strconv.Itoa(int(order.Amount())) + " of " + strconv.Itoa(int(stock.Count())) + "+" + strconv.Itoa(int(stock.Coming())) + " " + order.Item()
	verdict.Priority = guest.PriorityUrgent
	verdict.Greeting = "hello " + order.Customer().Name() + " " + strings.Join(order.Tags(), ",")
	return nil
}

func (plugin) Cancel(order guest.Order, verdict *guest.Verdict) error {
	verdict.Reason = "cancelled " + order.Item()
	return nil
}

func init() { guest.RegisterOrders(plugin{}) }

func main() {}
