package zzprobe

import (
	"fmt"
	"math"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler/reference"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/sim/profile"
)

func TestSpread(t *testing.T) {
	for _, set := range []struct {
		slo    float64
		models []string
	}{{200, []string{"ssd", "resnet-50", "mobilenet"}}, {50, []string{"textcnn-69", "lstm-maxclass-2365", "catdog"}}} {
		for _, mode := range []string{"bound", "tail all b", "tail", "tail.95 all", "tail98.5all"} {
			p := packing.Problem{Classes: []packing.Class{{Free: cluster.Resources{CPU: 16000, GPU: 100, Memory: 64 << 30}, Count: 16}}}
			for k, m := range set.models {
				x, err := profile.FromTestbed(reference.INFless(), m, profile.Memory{})
				if err != nil {
					t.Fatal(err)
				}
				s := x.Spread()
				if mode == "bound" {
					fmt.Println(m, "spread", s, "tail", math.Exp(2.326*s))
				}
				d := 1.0
				if mode == "bound" {
					d = .99
				}
				p.Demands = append(p.Demands, d)
				seen := map[cluster.Config]bool{}
				for _, c := range x.Configs() {
					for b := 1; b <= c.Batch; b++ {
						key := c
						key.Batch = b
						if seen[key] {
							continue
						}
						seen[key] = true
						tm, ok := x.Exec(c, b)
						if !ok {
							continue
						}
						ms := tm.Seconds() * 1000
						rate := float64(b) / ms * 1000
						switch mode {
						case "bound":
							r := math.Log((set.slo-.5)/ms) + s*s/2
							rate *= math.Erfc(-r/s/math.Sqrt2) / 2
						case "tail all b":
							if ms*math.Exp(2.326*s) > set.slo-.5 {
								continue
							}
						case "tail":
							if b != c.Batch || ms*math.Exp(2.326*s) > set.slo-.5 {
								continue
							}
						case "tail.95 all":
							if ms*math.Exp(2.326*s) > set.slo*.95 {
								continue
							}
						case "tail98.5all":
							if ms*math.Exp(2.326*s) > set.slo*.985 {
								continue
							}
						}
						if rate <= 1e-9 {
							continue
						}
						p.Items = append(p.Items, packing.Item{Demand: k, Rate: rate, Need: c.Resources})
					}
				}
			}
			theta, err := packing.Bound(p)
			fmt.Println(set.models[0], mode, theta*float64(len(set.models)), err, len(p.Items))
		}
	}
}
