// Plugin is of the broken version.
package main

import "github.com/kubewasm/kubewasm/host/service/testdata/evolution/broken/guest"

type plugin struct{}

func (plugin) Check(order guest.Order, verdict *guest.Verdict) error {
	stock, err := guest.Stock{}.Count(&guest.CountRequest{Item: string(order.Item())})
	verdict.Score = int64(len(stock.Count()))
	return err
}

func init() { guest.RegisterOrders(plugin{}) }

func main() {}
