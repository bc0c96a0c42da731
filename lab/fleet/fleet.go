// Package fleet reads the machines of a simulated cluster and makes the scheduler's nodes
// from them. It also holds the texts of the built-in scenarios and clusters, and a strict
// YAML reader (Document), which reports every mistake with its line. It does not read
// scenarios, see lab/scenario. Begin with Load.
package fleet

import (
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Machines is a group of equal machines.
type Machines struct {
	// Name is the prefix of the machines' names. A number follows it.
	Name string
	// Count is the number of machines.
	Count int
	// CPU is the CPU of one machine in millicores, 1000 for each CPU thread. Memory is
	// its memory in bytes.
	CPU    int
	Memory int64
	// GPUs is the number of GPUs of one machine, GPUMemory the bytes of one GPU.
	GPUs      int
	GPUMemory int64
	// Device is what variants of models run on, such as [Inferentia]. Price is the price of
	// a machine with one, which its instances divide. A machine with a device has neither
	// CPU nor memory for others.
	Device string
	Price  float64
	// Boot is how long a machine takes to boot. Running is the number of machines that are
	// on at first.
	Boot    time.Duration
	Running int
	// Serial: batches of different instances execute one after the other, unless instances
	// have their own shares of the device.
	Serial bool
}

// Cluster has all machines of a simulation.
type Cluster struct {
	// Name is a label for tables.
	Name     string
	Machines []Machines
}

// Nodes lists the cluster's nodes, all free. An instance cannot span GPUs. Therefore a
// machine with k > 1 GPUs is k nodes, each with one GPU (100 %) and 1/k of CPU and memory.
// On the paper's testbed, a node is one socket and its GPU.
func (c Cluster) Nodes() []cluster.Node {
	var nodes []cluster.Node
	for _, m := range c.Machines {
		parts := max(1, m.GPUs)
		total := cluster.Resources{CPU: m.CPU / parts, Memory: m.Memory / int64(parts)}
		if m.Device != "" {
			total = m.room()
		} else if m.GPUs > 0 {
			total.GPU, total.GPUMemory = 100, m.GPUMemory
		}
		for i := range m.Count {
			name := m.Name + "-" + strconv.Itoa(i+1)
			for part := range parts {
				if parts > 1 {
					nodes = append(nodes, cluster.Node{Name: name + separator + strconv.Itoa(part), Total: total, Free: total})
				} else {
					nodes = append(nodes, cluster.Node{Name: name, Total: total, Free: total})
				}
			}
		}
	}
	return nodes
}

// Kinds lists one node of each kind of machine.
func (c Cluster) Kinds() []cluster.Node {
	var nodes []cluster.Node
	for _, m := range c.Machines {
		m.Count = 1
		nodes = append(nodes, Cluster{Machines: []Machines{m}}.Nodes()[0])
	}
	return nodes
}

// separator separates a machine's name from the number of its GPU.
const separator = "/"

// Machine returns the name of the machine that a node is, or is a part of.
func Machine(node string) string {
	machine, _, _ := strings.Cut(node, separator)
	return machine
}
