package graph

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
)

func on(t testing.TB, name, platform string, o Options) (*Graph, *partition.Space) {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cut.New(m)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := partition.Named(platform)
	if !ok {
		t.Fatalf("no platform %s", platform)
	}
	if o.Time, err = PublishedTime(p); err != nil {
		t.Fatal(err)
	}
	g, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := partition.NewSpace(g, p, partition.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return g, s
}

// Gillis §III-C: layers with a local response along the same dimensions can be cut together;
// the others only whole.
func TestGroupsOfSectionIIIC(t *testing.T) {
	g, _ := on(t, "vgg-16", "lambda", Published())
	names := func(first, end int) (all []string) {
		for _, o := range g.Options(first, end) {
			all = append(all, o.Name)
		}
		return all
	}
	for _, c := range []struct {
		first, end int
		want       string
	}{
		{0, 1, "whole 1x2 1x4 2x2 2x4 channels 2 channels 4"},
		{0, 2, "whole 1x2 1x4 2x2 2x4"}, // The second convolution reads all channels of the first.
		{0, 5, "whole 1x2 1x4 2x2 2x4"},
		{0, g.Layers(), "whole"},
	} {
		if got := strings.Join(names(c.first, c.end), " "); got != c.want {
			t.Errorf("layers %d to %d: %s, want %s", c.first, c.end-1, got, c.want)
		}
	}
}

// The parts of a grid keep all weights, compute a little more than the whole together, and
// return its output; those of channels divide weights and work.
func TestPartsAddUp(t *testing.T) {
	g, _ := on(t, "vgg-16", "lambda", Published())
	sum := func(o partition.Option) (compute float64, weights, out int64) {
		for _, p := range o.Parts {
			compute, weights, out = compute+p.Compute, weights+p.Weights, out+p.Out
		}
		return compute, weights, out
	}
	options := map[string]partition.Option{}
	for _, o := range g.Options(1, 2) {
		options[o.Name] = o
	}
	compute, weights, out := sum(options["whole"])
	for name, o := range options {
		c, w, back := sum(o)
		if back != out {
			t.Errorf("%s returns %d bytes, the whole %d", name, back, out)
		}
		if c < compute*0.99 || c > compute*1.3 {
			t.Errorf("%s computes %.1f ms, the whole %.1f", name, c, compute)
		}
		copies := int64(1)
		if !strings.HasPrefix(name, "channels") {
			copies = int64(len(o.Parts))
		}
		if w != copies*weights {
			t.Errorf("%s keeps %d bytes, the whole %d", name, w, weights)
		}
	}
	if _, c, err := g.Cut(1, 2, "2x2"); err != nil || len(c.Regions) != 4 {
		t.Errorf("%v: %v", c, err)
	}
	if _, _, err := g.Cut(1, 2, "7x7"); err == nil || !strings.Contains(err.Error(), `"channels 2"`) {
		t.Errorf("an unknown option: %v", err)
	}
}

// Fig. 9 and 10: what the network allows. VGG gains on both platforms, on KNIX more; a thin
// ResNet gains nothing on Lambda.
func TestFig9And10(t *testing.T) {
	speedup := func(name, platform string) float64 {
		g, s := on(t, name, platform, Published())
		whole := 0.0
		for i := range g.Layers() {
			whole += g.Options(i, i+1)[0].Parts[0].Compute
		}
		plan, err := s.Fastest(0)
		if err != nil {
			t.Fatal(err)
		}
		return whole / plan.Time.Mean
	}
	lambda, knix := speedup("vgg-16", "lambda"), speedup("vgg-16", "knix")
	if lambda < 1.5 || knix < lambda {
		t.Errorf("vgg-16: %.2f on Lambda, %.2f on KNIX", lambda, knix)
	}
	if thin := speedup("resnet-50", "lambda"); thin < 0.999 || thin > 1.05 {
		t.Errorf("resnet-50 on Lambda: %.2f", thin)
	}
	if thin := speedup("resnet-50", "knix"); thin < 1.2 {
		t.Errorf("resnet-50 on KNIX: %.2f", thin)
	}
}

// A group that also gives an output of the model can only be whole.
func TestOutputsInside(t *testing.T) {
	m, err := zoo.Make("vgg-11", 1)
	if err != nil {
		t.Fatal(err)
	}
	p := proto.CloneOf(m.Proto())
	first, err := cut.New(m)
	if err != nil {
		t.Fatal(err)
	}
	inside := proto.CloneOf(p.Graph.Output[0])
	inside.Name = proto.String(first.Layers()[1].Out[0])
	inside.GetType().GetTensorType().Shape = nil
	p.Graph.Output = append(p.Graph.Output, inside)
	two, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cut.New(two)
	if err != nil {
		t.Fatal(err)
	}
	o := Published()
	o.Time = func(w cut.Work) float64 { return float64(w.FLOPs) }
	g, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(g.Options(0, 2)); n < 4 {
		t.Errorf("the layers up to the output have %d options", n)
	}
	if n := len(g.Options(0, 3)); n != 1 {
		t.Errorf("the layers around the output have %d options", n)
	}
	for first := range g.Layers() {
		for end := first + 1; end <= g.Layers(); end++ {
			for _, option := range g.Options(first, end) {
				group, how, err := g.Cut(first, end, option.Name)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := group.Cut(how); err != nil {
					t.Errorf("layers %d to %d, %s: %v", first, end-1, option.Name, err)
				}
			}
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		on(b, "resnet-101", "knix", Ours())
	}
}
