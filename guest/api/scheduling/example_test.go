package scheduling_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/scheduling"
)

func Example() {
	class := scheduling.PriorityClassFromJSON([]byte(`{"value": 1000000, "preemptionPolicy": "Never", "globalDefault": false}`))
	fmt.Println(class.Value(), class.HasPreemptionPolicy(), class.PreemptionPolicy(), class.GlobalDefault())
	// Output: 1000000 true Never false
}
