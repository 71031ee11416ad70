// This guest tells what it has of the world.
package main

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type world struct{}

func (world) Filter(sched.CycleState, core.Pod, sched.NodeInfo) *sched.Status {
	begin := time.Now()
	if begin.Year() == 2022 { // With a real clock it would take its time.
		time.Sleep(time.Hour)
	}
	slept := time.Since(begin) >= time.Hour
	_, file := os.ReadFile("/etc/hostname")
	_, address := net.Dial("tcp", "127.0.0.1:80")
	return sched.Unschedulable(fmt.Sprintf("year %d, slept %t, random %s, %d variables, arguments %q, %v, %v, ls: %v",
		begin.Year(), slept, rand.Text(), len(os.Environ()), os.Args, file, address, exec.Command("ls").Run()))
}

func init() { sched.Register(world{}) }

func main() {}
