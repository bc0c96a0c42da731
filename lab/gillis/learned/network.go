package learned

import (
	"math"
	"math/rand/v2"
)

// network is a policy: a two-layer neural network whose outputs are the probabilities of
// actions. It is trained with Adam.
type network struct {
	in, hidden, out int
	// parameters has the weights and biases of both layers, one after the other. gradient
	// collects what ascends the reward.
	parameters, gradient []float64
	adam                 adam
	// active and probabilities are those of the last forward.
	active, probabilities []float64
}

// newNetwork returns a network with twice as many hidden units as inputs, with random
// weights.
func newNetwork(r *rand.Rand, in, out int) *network {
	n := &network{in: in, hidden: 2 * in, out: out}
	n.parameters = make([]float64, n.hidden*(in+1)+out*(n.hidden+1))
	n.gradient = make([]float64, len(n.parameters))
	n.adam = adam{mean: make([]float64, len(n.parameters)), square: make([]float64, len(n.parameters))}
	n.active, n.probabilities = make([]float64, n.hidden), make([]float64, out)
	first, second := n.layers(n.parameters)
	for i := range first {
		first[i] = (2*r.Float64() - 1) / math.Sqrt(float64(in))
	}
	for i := range second {
		second[i] = (2*r.Float64() - 1) / math.Sqrt(float64(n.hidden))
	}
	return n
}

// layers splits parameters by layer: rows of weights by input, then the biases. A row by
// input lets inputs of 0, which are most, cost nothing.
func (n *network) layers(all []float64) (first, second []float64) {
	return all[:n.hidden*(n.in+1)], all[n.hidden*(n.in+1):]
}

// forward returns the probabilities of the actions. They hold until the next call.
func (n *network) forward(input []float64) []float64 {
	first, second := n.layers(n.parameters)
	copy(n.active, first[n.in*n.hidden:])
	for i, x := range input {
		if x == 0 {
			continue
		}
		for j, w := range first[i*n.hidden : (i+1)*n.hidden] {
			n.active[j] += w * x
		}
	}
	copy(n.probabilities, second[n.hidden*n.out:])
	for j := range n.active {
		if n.active[j] = max(0, n.active[j]); n.active[j] == 0 {
			continue
		}
		for k, w := range second[j*n.out : (j+1)*n.out] {
			n.probabilities[k] += w * n.active[j]
		}
	}
	largest, sum := math.Inf(-1), 0.0
	for _, p := range n.probabilities {
		largest = max(largest, p)
	}
	for k, p := range n.probabilities {
		n.probabilities[k] = math.Exp(p - largest)
		sum += n.probabilities[k]
	}
	for k := range n.probabilities {
		n.probabilities[k] /= sum
	}
	return n.probabilities
}

// reward adds the gradient of Σ rewards[a]·log p(a) for the input of the last forward.
func (n *network) reward(input, rewards []float64) {
	_, second := n.layers(n.parameters)
	firstGradient, secondGradient := n.layers(n.gradient)
	total := 0.0
	for _, r := range rewards {
		total += r
	}
	logits := make([]float64, n.out)
	for k, p := range n.probabilities {
		logits[k] = rewards[k] - total*p
		secondGradient[n.hidden*n.out+k] += logits[k]
	}
	hidden := make([]float64, n.hidden)
	for j, a := range n.active {
		if a == 0 {
			continue
		}
		for k, w := range second[j*n.out : (j+1)*n.out] {
			hidden[j] += w * logits[k]
			secondGradient[j*n.out+k] += a * logits[k]
		}
		firstGradient[n.in*n.hidden+j] += hidden[j]
	}
	for i, x := range input {
		if x == 0 {
			continue
		}
		row := firstGradient[i*n.hidden : (i+1)*n.hidden]
		for j, h := range hidden {
			row[j] += h * x
		}
	}
}

// step moves the parameters along the gradient, and clears it.
func (n *network) step() {
	n.adam.step(n.parameters, n.gradient)
	clear(n.gradient)
}

// adam is the optimiser of Kingma and Ba with their defaults, at the rate of the paper.
type adam struct {
	mean, square []float64
	steps        int
}

func (a *adam) step(parameters, gradient []float64) {
	const rate, beta1, beta2, epsilon = 1e-3, 0.9, 0.999, 1e-8
	a.steps++
	c1, c2 := 1-math.Pow(beta1, float64(a.steps)), 1-math.Pow(beta2, float64(a.steps))
	for i, g := range gradient {
		a.mean[i] = beta1*a.mean[i] + (1-beta1)*g
		a.square[i] = beta2*a.square[i] + (1-beta2)*g*g
		parameters[i] += rate * a.mean[i] / c1 / (math.Sqrt(a.square[i]/c2) + epsilon)
	}
}

// draw returns an index by its probability.
func draw(r *rand.Rand, probabilities []float64) int {
	u := r.Float64()
	for i, p := range probabilities {
		if u -= p; u < 0 {
			return i
		}
	}
	return len(probabilities) - 1
}
