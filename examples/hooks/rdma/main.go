// Command rdma is a runtime hook that adds the RDMA devices of a pod to its containers, after
// Koordinator's hook of the same name. A scheduler has picked them, by their addresses on the PCI
// bus, or virtual functions of them:
//
//	scheduling.koordinator.sh/device-allocated: |
//	  {"rdma": [{"minor": 0, "id": "0000:1f:00.0", "extension": {"vfs": [{"busID": "0000:1f:00.2"}]}}]}
//
// A device is a file of the node. Which one is in sysfs (/sys/bus/pci/devices/*/infiniband_verbs),
// where a plugin does not look, so the configuration has it:
//
//	{"connection": {"path": "/dev/infiniband/rdma_cm", "major": 10, "minor": 57},
//	 "devices": {"0000:1f:00.2": {"path": "/dev/infiniband/uverbs1", "major": 231, "minor": 193}}}
//
// The plugin needs the grant devices: ["/dev/infiniband/*"]; the host compares the numbers with those
// of the files.
package main

import (
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/guest/log"
)

//kubewasm:reads pod pod_annotations[scheduling.koordinator.sh/device-allocated]

const (
	allocatedAnnotation = "scheduling.koordinator.sh/device-allocated"
	mode                = 0o666
)

// rdma is the configuration.
type rdma struct {
	// Connection is the device of the connection manager, which all get.
	Connection device            `json:"connection"`
	Devices    map[string]device `json:"devices"`
}

// device is a character device of the node.
type device struct {
	Path  string `json:"path"`
	Major int64  `json:"major"`
	Minor int64  `json:"minor"`
}

// allocated is the annotation.
type allocated struct {
	RDMA []struct {
		ID        string `json:"id"`
		Extension struct {
			VFs []struct {
				BusID string `json:"busID"`
			} `json:"vfs"`
		} `json:"extension"`
	} `json:"rdma"`
}

func (r *rdma) Decide(req *hooks.Request, d *hooks.Decision) error {
	// Devices are made with the container.
	if req.Level() != abi.LevelContainer || req.Stage() != abi.PreCreateContainer {
		return nil
	}
	text, ok := req.PodAnnotations().Lookup(allocatedAnnotation)
	if !ok {
		return nil
	}
	var a allocated
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		log.Warn("a container has no RDMA devices: the annotation of its pod cannot be read", "pod", req.Pod().Name(), "annotation", allocatedAnnotation, "err", err)
		return nil
	}
	if len(a.RDMA) == 0 {
		return nil
	}
	if r.Connection.Path == "" {
		return errors.New("connection has no path")
	}
	devices := []device{r.Connection}
	for _, v := range a.RDMA {
		addresses := []string{v.ID}
		if len(v.Extension.VFs) != 0 { // Instead of the whole.
			addresses = addresses[:0]
			for _, vf := range v.Extension.VFs {
				addresses = append(addresses, vf.BusID)
			}
		}
		for _, address := range addresses {
			of, ok := r.Devices[address]
			if !ok {
				return errors.New("devices has no " + strconv.Quote(address))
			}
			devices = append(devices, of)
		}
	}
	for _, of := range devices {
		d.AddContainerDevice(hooks.Device{Path: of.Path, Type: "c", Major: of.Major, Minor: of.Minor, FileMode: new(int64(mode))})
	}
	return nil
}

func init() { hooks.Register(&rdma{}) }

func main() {}
