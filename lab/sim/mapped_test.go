package sim

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// mapping is a model on the CPU whose instances map the same part of their memory.
type mapping struct {
	model
	bytes int64
}

func (m mapping) Configs() (configs []cluster.Config) {
	for _, c := range m.model.Configs() {
		if c.GPU == 0 && c.CPU == 1000 {
			c.Memory, c.Mapped = 256<<20, cluster.Mapping{File: "w", Bytes: m.bytes}
			configs = append(configs, c)
		}
	}
	return configs
}

// A node of the simulator holds as many instances as one of the backends: 8 that take 256 MiB of 2 GiB,
// and 12 of which 98 MiB are mapped together. Otherwise the run ends with an error.
func TestMappedFilesCountOnce(t *testing.T) {
	for bytes, want := range map[int64]int{0: 8, 98 << 20: 12} {
		s := three(t, systems.FaaSInfer, 30_000)
		s.Nodes = []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 16_000, Memory: 2 << 30}}}
		s.Functions, s.Duration, s.Warmup = s.Functions[:1], 20*time.Second, 0
		s.Functions[0].Times = mapping{s.Functions[0].Times.(model), bytes}
		if r := simulate(t, s); r.PeakInstances != want {
			t.Errorf("%d instances that map %d MiB, want %d", r.PeakInstances, bytes>>20, want)
		}
	}
}
