package fleet

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// The devices that variants of models run on.
const (
	CPU        = "cpu"
	GPU        = "gpu"
	Inferentia = "inferentia"
)

var devices = []string{CPU, GPU, Inferentia}

// Unit is the number of units of resources for a price of 1. The scheduler weighs resources;
// with a β of 1 an instance of a variant weighs its price in units.
const Unit = 1000

// perDevice is the maximum number of instances on a GPU or Inferentia.
const perDevice = 64

// TimeWeight is the price of the whole time of a serial machine's device, as a part of the machine's
// price. An instance costs as much as its memory; this makes it choose the smallest share of time
// that is enough.
const TimeWeight = 0.01

// Share returns what an instance of a price takes of a machine with a device: its price, in
// units. So it takes the same part of the device as its price is of the machine's. part is the
// part of the device's time that it has of its own, 0 if none. Memory and GPU memory only keep
// instances from other devices, and such parts from adding up to more than a device.
func Share(device string, price, part float64) cluster.Resources {
	units := max(1, int(math.Round(price*Unit)))
	own := max(1, int64(math.Ceil(part*perDevice)))
	switch device {
	case CPU:
		return cluster.Resources{CPU: 1000 * units}
	case GPU:
		return cluster.Resources{GPU: units, GPUMemory: own}
	case Inferentia:
		return cluster.Resources{GPU: units, Memory: own}
	}
	return cluster.Resources{}
}

// room is what a machine has for the instances on its device.
func (m *Machines) room() cluster.Resources {
	price := m.Price
	if m.Serial {
		price *= 1 + TimeWeight
	}
	r := Share(m.Device, price, 0)
	r.GPUMemory *= perDevice
	r.Memory *= perDevice
	return r
}

// IsDevice returns an error message if variants cannot run on such a device, "" if they can.
func IsDevice(name string) string {
	if slices.Contains(devices, name) {
		return ""
	}
	return "it must be one of " + strings.Join(devices, ", ")
}

// device reads a machine's device and what belongs to it.
func (m *Machines) device(o *Object) {
	m.Running = m.Count
	if !o.Has("device") {
		for _, key := range []string{"price", "boot", "running", "serial"} {
			if o.Has(key) {
				o.Fail(key, "only a machine with a device has this key: give device, such as gpu")
			}
		}
		return
	}
	o.Need("price")
	if m.Device = o.String("device"); IsDevice(m.Device) != "" {
		o.Fail("device", "%q: %s", m.Device, IsDevice(m.Device))
	}
	m.Price = o.Number("price", 1e-3, 1e6, 1)
	m.Boot = o.Duration("boot", 0, time.Hour, 0)
	m.Running = o.Int("running", 0, maxMachines, m.Count)
	m.Serial = o.Bool("serial", false)
}

// Of returns the machines with a device, nil if there is none.
func (c Cluster) Of(device string) *Machines {
	for i := range c.Machines {
		if c.Machines[i].Device == device {
			return &c.Machines[i]
		}
	}
	return nil
}

// Boots has, by node, how long the machines take to boot that are off at first.
func (c Cluster) Boots() map[string]time.Duration {
	boots := map[string]time.Duration{}
	c.each(func(m *Machines, i int, node string) {
		if i >= m.Running {
			boots[node] = m.Boot
		}
	})
	return boots
}

// Serial has the nodes whose devices execute one batch at a time.
func (c Cluster) Serial() map[string]bool {
	serial := map[string]bool{}
	c.each(func(m *Machines, _ int, node string) { serial[node] = m.Serial })
	return serial
}

// each calls f for the machines with a device, by their numbers from 0 on.
func (c Cluster) each(f func(m *Machines, i int, node string)) {
	for k := range c.Machines {
		if m := &c.Machines[k]; m.Device != "" {
			for i, n := range (Cluster{Machines: []Machines{*m}}).Nodes() {
				f(m, i, n.Name)
			}
		}
	}
}
