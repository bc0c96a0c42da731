package scaling

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

const ms = time.Millisecond

func config(b, cpu, gpu int, exec time.Duration) capacity.Candidate {
	return capacity.Candidate{
		Config: cluster.Config{Batch: b, Resources: cluster.Resources{CPU: cpu, GPU: gpu, Memory: 100 << 20}},
		Exec:   exec,
	}
}

func node(name string, cpu, gpu int, memory int64) cluster.Node {
	r := cluster.Resources{CPU: cpu, GPU: gpu, Memory: memory}
	return cluster.Node{Name: name, Total: r, Free: r}
}

// fleet is the size for which the design is made: 10,000 instances on 2,000 servers.
func fleet() (capacity.Demand, []cluster.Node) {
	var nodes []cluster.Node
	for i := range 2000 {
		nodes = append(nodes, node(fmt.Sprintf("n%04d", i), 16000+i%7*500, 200, 128<<30))
	}
	d := capacity.Demand{SLO: 200 * ms}
	for b := 1; b <= 32; b *= 2 {
		for _, cpu := range []int{1000, 2000, 4000} {
			for _, gpu := range []int{0, 10, 20, 50} {
				exec := time.Duration(float64(5*ms) * (1 + float64(b)) / (float64(cpu)/1000 + float64(gpu)/5))
				d.Configs = append(d.Configs, config(b, cpu, gpu, exec))
			}
		}
	}
	return d, nodes
}
