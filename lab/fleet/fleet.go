// Package fleet reads the machines of a simulated cluster and makes the nodes as which a
// scheduler sees them. It also holds the texts of the built-in scenarios and clusters,
// and the strict reader of YAML (Document), which reports every mistake with its line.
package fleet

import (
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/cluster"
)

// Machines is some machines that are all alike.
type Machines struct {
	// Name is the beginning of their names, which go on with a number.
	Name string
	// Count is how many there are.
	Count int
	// CPU is a machine's in millicores, one CPU thread being 1000, and Memory
	// its memory in bytes.
	CPU    int
	Memory int64
	// GPUs is how many GPUs a machine has, GPUMemory the bytes of one.
	GPUs      int
	GPUMemory int64
}

// Cluster is all machines.
type Cluster struct {
	// Name is for people.
	Name     string
	Machines []Machines
}

// Nodes lists the cluster's nodes, all free. No instance spans GPUs, so that a
// machine with k > 1 of them is k nodes, each a GPU (100 %) with 1/k of CPU and
// memory: on the paper's testbed one socket and its GPU.
func (c Cluster) Nodes() []cluster.Node {
	var nodes []cluster.Node
	for _, m := range c.Machines {
		parts := max(1, m.GPUs)
		total := cluster.Resources{CPU: m.CPU / parts, Memory: m.Memory / int64(parts)}
		if m.GPUs > 0 {
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

// separator stands between a machine's name and the number of its GPU.
const separator = "/"

// Machine names the machine that a node is, or is a part of.
func Machine(node string) string {
	machine, _, _ := strings.Cut(node, separator)
	return machine
}
