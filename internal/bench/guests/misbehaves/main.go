// Command misbehaves is a policy that does what its configuration says: it loops, it traps, or it
// takes all memory that there is.
package main

import "github.com/kubewasm/kubewasm/guest/admission"

type misbehaves struct {
	How string `json:"how"`
}

var (
	spent int
	hoard [][]byte
)

func (m *misbehaves) Validate(*admission.Request) *admission.Response {
	switch m.How {
	case "loop":
		for {
			spent++
		}
	case "trap":
		panic("as configured")
	case "hog":
		for {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 1 << 10 {
				b[i] = 1
			}
			hoard = append(hoard, b)
		}
	}
	return admission.Allow()
}

func init() { admission.Register(&misbehaves{}) }

func main() {}
