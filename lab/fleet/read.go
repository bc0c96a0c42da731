package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Load reads a built-in cluster by its name, or a file with keys "about" (optional)
// and "machines".
func Load(nameOrFile string) (Cluster, error) {
	text, err := clusterText(nameOrFile)
	if err != nil {
		read, failed := os.ReadFile(nameOrFile)
		switch {
		case failed == nil:
			text = read
		case os.IsNotExist(failed):
			return Cluster{}, err
		default:
			return Cluster{}, fmt.Errorf("cluster: %w", failed)
		}
	}
	return Parse(nameOrFile, text)
}

// Parse reads the text of a cluster's file; errors begin with name.
func Parse(name string, text []byte) (Cluster, error) {
	d, err := ParseDocument(name, text)
	if err != nil {
		return Cluster{}, err
	}
	o := d.Root()
	o.String("about")
	c := Read(o)
	c.Name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	if err := d.Err(); err != nil {
		return Cluster{}, err
	}
	return c, nil
}

// The limits of a machine and of a cluster. They keep sums far from overflowing.
const (
	maxThreads  = 1 << 16
	maxGPUs     = 64
	maxMachines = 100_000
)

var names = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Read reads an object with the key "machines". It records errors in the object's document.
func Read(o *Object) Cluster {
	var c Cluster
	total := 0
	for i, m := range o.Objects("machines") {
		read := machines(m, i)
		if slices.ContainsFunc(c.Machines, func(other Machines) bool { return other.Name == read.Name }) {
			m.Fail("name", "%s occurs twice", read.Name)
		}
		total += read.Count
		c.Machines = append(c.Machines, read)
	}
	switch {
	case total == 0:
		o.Fail("machines", "the cluster is empty: add a machine, such as - {cpu: 32, memory: 128GiB}")
	case total > maxMachines:
		o.Fail("machines", "%d machines are too many: the maximum is %d", total, maxMachines)
	}
	o.Done()
	return c
}

func machines(o *Object, i int) Machines {
	if !o.Has("device") {
		o.Need("cpu", "memory")
	}
	m := Machines{
		Name:      o.String("name"),
		Count:     o.Int("count", 1, maxMachines, 1),
		CPU:       int(1000 * o.Number("cpu", 0.001, maxThreads, 1)),
		Memory:    o.Bytes("memory", 1),
		GPUs:      o.Int("gpus", 0, maxGPUs, 0),
		GPUMemory: o.Bytes("gpu_memory", 0),
	}
	switch {
	case m.Name == "":
		m.Name = fmt.Sprintf("m%d", i+1)
	case !names.MatchString(m.Name):
		o.Fail("name", "%q is not a name: use lower-case letters, digits and dashes", m.Name)
	}
	if (m.GPUs > 0) != (m.GPUMemory > 0) {
		o.Fail("gpus", "set both gpus and gpu_memory (that of one GPU), or neither")
	}
	m.device(o)
	o.Done()
	return m
}
