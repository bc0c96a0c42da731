package shadows

import (
	"testing"

	"github.com/faas-infer/faas-infer/lab/asyfunc"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pairing"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// The time assumed for tensors to cross hides a tenth of a pair's rate if the model is quick. The measured
// time (docs/design/shadow.md) leaves nothing to be discovered: without any time pairs would serve less
// than a hundredth more. Layers are those of the simulation's law; `go test -v` prints the rates over two bodies.
func TestMeasuredCrossingsLeaveNothing(t *testing.T) {
	models, err := asyfunc.DefaultLaw().Models([]string{"textcnn-69", "mobilenet", "dssm-2365", "ssd", "resnet-20", "bert-small", "resnet-50", "vgg-16"})
	if err != nil {
		t.Fatal(err)
	}
	hidden := 0.0
	for _, m := range models {
		s := &subject{Bench: Bench{Rows: 4, between: pairing.Relayed}, layers: m}
		if err := s.divide(); err != nil || s.division == nil {
			t.Fatalf("%s: it is not divided: %v", m.Name, err)
		}
		rate := func(between shadow.Transfer) float64 {
			p, err := m.Pair(s.division.Pair.Phi, 1, shadow.Options{Body: core, Shadow: core, MaxRows: s.pairRows(), Transfer: between, Partial: true})
			if err != nil {
				t.Fatal(err)
			}
			return p.PerSecond / 2000 * m.Time(0, len(m.Blocks), s.pairRows(), core) / float64(s.pairRows())
		}
		assumed, measured, none := rate(pairing.Relayed), rate(shadow.Transfer{Fixed: 0.008, PerMiB: 0.021}), rate(shadow.Transfer{})
		t.Logf("%-12s %7.2f ms: assumed %.3f, measured %.3f, none %.3f", m.Name, m.Time(0, len(m.Blocks), 1, core), assumed, measured, none)
		if none > 1.01*measured {
			t.Errorf("%s: pairs with measured crossings have %.3f of two bodies' rate, those without any %.3f", m.Name, measured, none)
		}
		hidden = max(hidden, measured/assumed-1)
	}
	if hidden < 0.1 {
		t.Errorf("assumed crossings hide %.1f %% of a pair's rate at most", 100*hidden)
	}
}
