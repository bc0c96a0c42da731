package measuring

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// An operator that takes long is measured alone. One that does not is measured
// several times in one model, side by side, each copy with weights of its own:
// between other operators the engine's threads are still awake, as they would not
// be at the beginning of a call, and by the next call the weights of the other
// copies have taken the place of one's own in the core's cache.
var copiesUpTo = []struct {
	took   time.Duration
	copies int
}{{300 * time.Microsecond, 8}, {time.Millisecond, 4}, {4 * time.Millisecond, 2}}

// maxCopied is the most bytes of weights of all copies together: what a part of
// the last-level cache holds that neighbours are likely to leave.
const maxCopied = 24 << 20

// copiesFor is how many copies of an operator are measured that takes so long
// and has so many bytes of weights.
func copiesFor(took time.Duration, weights int64) int {
	for _, c := range copiesUpTo {
		if took < c.took && weights*int64(c.copies) <= maxCopied {
			return c.copies
		}
	}
	return 1
}

// copied is a model of n copies of another, which read the same inputs. The
// weights of each differ in a bit, or the engine would keep one for all.
func copied(m *model.Model, n int) (*model.Model, error) {
	if n == 1 {
		return m, nil
	}
	one := m.Proto()
	all := proto.CloneOf(one)
	shared := map[string]bool{"": true}
	for _, in := range one.GetGraph().GetInput() {
		shared[in.GetName()] = true
	}
	for c := 1; c < n; c++ {
		copyInto(all.GetGraph(), one.GetGraph(), shared, c)
	}
	return model.FromProto(all)
}

func copyInto(all, one *onnxpb.GraphProto, shared map[string]bool, c int) {
	rename := func(name string) string {
		if shared[name] {
			return name
		}
		return fmt.Sprintf("%s.%d", name, c)
	}
	for _, t := range one.GetInitializer() {
		t = proto.CloneOf(t)
		t.Name = proto.String(rename(t.GetName()))
		if len(t.RawData) >= 1024 && t.GetDataType() == int32(onnxpb.TensorProto_FLOAT) {
			t.RawData[0] ^= byte(c)
		}
		all.Initializer = append(all.Initializer, t)
	}
	for _, n := range one.GetNode() {
		n = proto.CloneOf(n)
		if n.Name != nil {
			n.Name = proto.String(rename(n.GetName()))
		}
		for i := range n.Input {
			n.Input[i] = rename(n.Input[i])
		}
		for i := range n.Output {
			n.Output[i] = rename(n.Output[i])
		}
		all.Node = append(all.Node, n)
	}
	for _, o := range one.GetOutput() {
		o = proto.CloneOf(o)
		o.Name = proto.String(rename(o.GetName()))
		all.Output = append(all.Output, o)
	}
}
