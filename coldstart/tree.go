package coldstart

// The tree has a leaf for every step, and one for idle times beyond the last step.
const (
	depth  = 9
	leaves = 1 << depth
)

// tree estimates the distribution of idle times as finely as the samples allow, by
// context-tree weighting (Willems, Shtarkov and Tjalkens, The Context-Tree Weighting
// Method, 1995). Each inner node either stops or splits. If it stops, everything below
// it has the prior distribution. If it splits, the two halves share its mass in the
// ratio of the samples left and right of its middle. ratio is how much better splitting
// has predicted so far. Three ticks of a timer make a sharp peak; idle times without a
// pattern stay a smooth curve.
type tree struct {
	left, total, ratio [leaves]float32 // by inner node; the root is 1
	forget             float32
	// limit bounds ratio and 1/ratio, so that new samples can still turn a node.
	limit float32
}

// priorWeight is the weight of the prior in a split, in samples.
const priorWeight = 0.5

// prior is the mass of each node without samples.
var prior = func() (mass [2 * leaves]float32) {
	for i := range leaves {
		mass[leaves+i] = 1e-9
		if i <= Steps {
			mass[leaves+i] += float32(logUniform[i])
		}
	}
	for i := leaves - 1; i > 0; i-- {
		mass[i] = mass[2*i] + mass[2*i+1]
	}
	return mass
}()

// newTree returns a tree whose splits remember about memory samples.
func newTree(memory, limit float32) *tree {
	t := &tree{forget: 1 - 1/memory, limit: limit}
	t.reset()
	return t
}

func (t *tree) reset() {
	t.left, t.total = [leaves]float32{}, [leaves]float32{}
	for i := range t.ratio {
		t.ratio[i] = 1
	}
}

// leftPart is the share of a node's mass that is left of its middle.
func (t *tree) leftPart(node int) float32 {
	return (t.left[node] + priorWeight*prior[2*node]/prior[node]) / (t.total[node] + priorWeight)
}

// learn counts a sample in a step.
func (t *tree) learn(step int) {
	leaf := leaves + step
	predicted := float32(1) // the predicted part of the child's mass that the leaf has
	for child := leaf; child > 1; child /= 2 {
		node := child / 2
		split := t.leftPart(node)
		if child&1 == 1 {
			split = 1 - split
		}
		split *= predicted
		stop := prior[leaf] / prior[node]
		r := t.ratio[node]
		predicted = (r*split + stop) / (1 + r)
		t.ratio[node] = max(1/t.limit, min(t.limit, r*split/stop))
		t.left[node] *= t.forget
		t.total[node] = t.total[node]*t.forget + 1
		if child&1 == 0 {
			t.left[node]++
		}
	}
}

// masses fills mass with the predicted probability of each step; it sums to 1.
func (t *tree) masses(mass []float32) {
	// flow is the mass that reaches a node by splits. density is the mass that stopped
	// above it, in multiples of prior.
	var flow, density [2 * leaves]float32
	flow[1] = 1
	for node := 1; node < leaves; node++ {
		split := flow[node] * t.ratio[node] / (1 + t.ratio[node])
		d := density[node] + (flow[node]-split)/prior[node]
		part := t.leftPart(node)
		flow[2*node], flow[2*node+1] = split*part, split*(1-part)
		density[2*node], density[2*node+1] = d, d
	}
	for i := range mass {
		mass[i] = flow[leaves+i] + density[leaves+i]*prior[leaves+i]
	}
	normalise(mass)
}

// normalise scales the masses to sum to 1.
func normalise(mass []float32) {
	sum := float32(0)
	for _, m := range mass {
		sum += m
	}
	for i := range mass {
		mass[i] /= sum
	}
}
