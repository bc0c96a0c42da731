package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// INFless Table 2: 8 machines of 32 threads and 128 GB, with two of the 16 GPUs
// each. An instance cannot span GPUs, so each is a node with half a machine.
func TestTestbedOfTable2(t *testing.T) {
	c, err := Load("testbed")
	if err != nil {
		t.Fatal(err)
	}
	nodes := c.Nodes()
	if len(nodes) != 16 || c.Name != "testbed" {
		t.Fatalf("%d nodes in %s", len(nodes), c.Name)
	}
	want := cluster.Resources{CPU: 16_000, GPU: 100, Memory: 64 << 30, GPUMemory: 11 << 30}
	machines := map[string]int{}
	seen := map[string]bool{}
	for _, n := range nodes {
		if n.Total != want || n.Free != want || seen[n.Name] {
			t.Errorf("%+v", n)
		}
		seen[n.Name] = true
		machines[Machine(n.Name)]++
	}
	if len(machines) != 8 || machines["m-3"] != 2 {
		t.Errorf("%v", machines)
	}
}

func TestBuiltinClusters(t *testing.T) {
	for name, want := range map[string]int{"testbed": 16, "large": 4000} {
		c, err := Load(name)
		if err != nil || len(c.Nodes()) != want {
			t.Errorf("%s: %d nodes, %v", name, len(c.Nodes()), err)
		}
	}
	if len(ClusterNames()) != 2 {
		t.Errorf("%v", ClusterNames())
	}
}

func TestLoadsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte("machines:\n- {cpu: 1.5, memory: 2GiB}\n- {name: big, count: 2, cpu: 4, memory: 8GiB, gpus: 1, gpu_memory: 1GiB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	nodes := c.Nodes()
	if kinds := c.Kinds(); len(kinds) != 2 || kinds[1].Name != "big-1" || kinds[1].Total != nodes[2].Total {
		t.Errorf("%+v", kinds)
	}
	if c.Name != "mine" || len(nodes) != 3 || nodes[0].Name != "m1-1" || nodes[0].Total.CPU != 1500 || nodes[0].Total.GPU != 0 || nodes[2].Name != "big-2" || nodes[2].Total.GPU != 100 {
		t.Errorf("%+v", nodes)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "absent")); err == nil || !strings.Contains(err.Error(), "one of testbed, large") {
		t.Errorf("got %v", err)
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"about: none":                                                                     "c.yaml:1: machines: the cluster is empty: add a machine",
		"machines: []":                                                                    "c.yaml:1: machines: the cluster is empty",
		"machines:\n- {cpu: 32}":                                                          "c.yaml:2: machines[0].memory: it is missing",
		"machines:\n- {cpu: -1, memory: 1GiB}":                                            `machines[0].cpu: "-1" is not a number from 0.001`,
		"machines:\n- {cpu: .nan, memory: 1GiB}":                                          `machines[0].cpu: ".nan" is not a number`,
		"machines:\n- {count: 0, cpu: 1, memory: 1GiB}":                                   `machines[0].count: "0" is not a whole number from 1`,
		"machines:\n- {cpu: 1, memory: 1GiB, gpus: 1}":                                    "machines[0].gpus: set both gpus and gpu_memory",
		"machines:\n- {cpu: 1, memory: 1GiB, gpu: 1}":                                     "machines[0].gpu: unknown key: the known keys are device, cpu, memory, name, count, gpus, gpu_memory",
		"machines:\n- {name: a/b, cpu: 1, memory: 1GiB}":                                  `"a/b" is not a name`,
		"machines:\n- &a {name: a, cpu: 1, memory: 1GiB}":                                 "without an anchor",
		"machines:\n- {name: a, cpu: 1, memory: 1GiB}\n- {name: a, cpu: 1, memory: 1GiB}": "machines[1].name: a occurs twice",
		"machines:\n- {count: 90000, cpu: 1, memory: 1GiB}\n- {count: 90000, cpu: 1, memory: 1GiB}": "180000 machines are too many",
		"nodes: []": "nodes: unknown key: the known keys are about, machines",
		"":          "c.yaml: the file is empty",
	} {
		if _, err := Parse("c.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range ClusterNames() {
		text, _ := clusterText(name)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f", text)
		if err != nil {
			return
		}
		nodes := c.Kinds()
		if len(nodes) == 0 {
			t.Fatal("an empty cluster")
		}
		for _, n := range nodes {
			if n.Total.CPU < 0 || n.Total.Memory < 0 || (n.Total.GPU > 0) != (n.Total.GPUMemory > 0) {
				t.Fatalf("%+v", n)
			}
		}
	})
}
