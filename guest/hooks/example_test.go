package hooks_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

// offline gives pods of the offline tier what the others leave of the CPU.
type offline struct{}

func (offline) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.PodLabels().Get("tier") == "offline" {
		d.SetCPUShares(2)
		d.SetCPUBvt(-1)
	}
	return nil
}

// A plugin is tested like any other Go code: make a request, call the method,
// read the decision.
func Example() {
	req := hooks.NewRequest(hooks.Fields{
		Stage:     abi.PreCreateContainer,
		Level:     abi.LevelContainer,
		PodLabels: map[string]string{"tier": "offline"},
	})

	var d hooks.Decision
	if err := (offline{}).Decide(req, &d); err != nil {
		fmt.Println(err)
	}

	shares, _ := d.CPUShares()
	_, quota := d.CFSQuota()
	fmt.Println("shares:", shares)
	fmt.Println("quota decided:", quota)
	// Output:
	// shares: 2
	// quota decided: false
}
