package measuring

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// copiesUpTo gives the number of copies of an operator by its time. A long operator is
// measured alone. A short one is measured as several copies in one model, side by side,
// each with its own weights. The engine's threads are then awake, as between operators
// and unlike at the beginning of a call. And by the next call the other copies' weights
// have replaced a copy's own in the core's cache.
var copiesUpTo = []struct {
	took   time.Duration
	copies int
}{{300 * time.Microsecond, 8}, {time.Millisecond, 4}, {4 * time.Millisecond, 2}}

// maxCopied is the maximum size in bytes of the weights of all copies together. This part
// of the last-level cache is likely to be free of neighbours' data.
const maxCopied = 24 << 20

// copiesFor is the number of copies for an operator with this time and size of weights
// in bytes.
func copiesFor(took time.Duration, weights int64) int {
	for _, c := range copiesUpTo {
		if took < c.took && weights*int64(c.copies) <= maxCopied {
			return c.copies
		}
	}
	return 1
}

// copied is a model of n copies of another, which read the same inputs. The weights of
// the copies differ in a few bits, because the engine would share equal ones.
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
