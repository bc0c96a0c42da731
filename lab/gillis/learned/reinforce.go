package learned

import (
	"math"
	"math/rand/v2"

	"github.com/faas-infer/faas-infer/papers/gillis/partition"
)

// The paper's and its release's training: batches of 20 plans, 1,500 iterations.
const (
	batch      = 20
	iterations = 1500
	// finals is the number of plans drawn from the trained policy; the best is the result.
	finals = 400
)

// agent is the RL model of Fig. 8.
type agent struct {
	*encoding
	random *rand.Rand
	// partitioner chooses the action of each layer, placer whether the master computes a part
	// of a group.
	partitioner, placer *network
	// budget is B of Eq. 4.
	budget float64
}

// episode is one plan with the choices that led to it.
type episode struct {
	actions []int
	inputs  [][]float64
	placed  []int
	plan    partition.Plan
	reward  float64
}

// Reinforce learns a plan by REINFORCE (§IV-C3): a partitioner draws how layers are fused and
// cut, a placer draws which groups give the master a part, and both networks follow the
// gradient of the reward of Eq. 4, in which B is ten times the cost of the whole model on
// one function. A plan that exceeds a function's memory has the reward -B. As published,
// there is no baseline and no discount. The result is the best of 400 plans drawn from the
// trained policies.
func Reinforce(s *partition.Space, slo partition.SLO, seed uint64) Result {
	return reinforce(s, slo, seed, iterations)
}

func reinforce(s *partition.Space, slo partition.SLO, seed uint64, iterations int) Result {
	e := newEncoding(s, slo)
	a := &agent{encoding: e, random: rand.New(rand.NewPCG(seed, 0))}
	_, a.budget = s.Whole()
	if a.budget *= 10; math.IsInf(a.budget, 1) {
		a.budget = 10 * slo.Ms
	}
	a.partitioner = newNetwork(a.random, len(e.sizes)+2, len(e.names)+1)
	a.placer = newNetwork(a.random, len(e.sizes)+3, 2)
	for range iterations {
		var episodes []*episode
		policy := a.policy()
		for range batch {
			episodes = append(episodes, a.episode(policy))
		}
		a.learn(episodes)
	}
	r := Result{Plans: iterations*batch + finals}
	policy := a.policy()
	for range finals {
		r = a.better(r, a.episode(policy).plan)
	}
	return r
}

// layer returns the partitioner's input for a layer: its place, its share of the weights,
// and one-hot its index.
func (a *agent) layer(i int) []float64 {
	input := make([]float64, a.partitioner.in)
	input[0], input[1] = float64(i)/float64(len(a.sizes)), a.sizes[i]/a.total
	input[2+i] = 1
	return input
}

// policy returns the probabilities of each layer's actions.
func (a *agent) policy() [][]float64 {
	var all [][]float64
	for i := range a.sizes {
		all = append(all, append([]float64(nil), a.partitioner.forward(a.layer(i))...))
	}
	return all
}

// episode draws a plan and rewards it.
func (a *agent) episode(policy [][]float64) *episode {
	ep := &episode{}
	for _, p := range policy {
		ep.actions = append(ep.actions, draw(a.random, p))
	}
	var rounds []partition.Round
	fits := true
	for i, g := range a.groups(ep.actions) {
		options := a.rounds(g)
		input := a.group(i, g, options)
		choice := draw(a.random, a.placer.forward(input))
		ep.inputs, ep.placed = append(ep.inputs, input), append(ep.placed, choice)
		r, ok := place(options, choice == 0)
		fits = fits && ok
		rounds = append(rounds, r)
	}
	ep.reward = -a.budget
	if fits {
		ep.plan = partition.NewPlan(a.space.Platform(), rounds)
		if a.space.Fits(&ep.plan) {
			ep.reward = a.value(&ep.plan)
		}
	}
	return ep
}

// value is the reward of Eq. 4.
func (a *agent) value(p *partition.Plan) float64 {
	if a.met(p) {
		return a.budget - p.Cost
	}
	return a.slo.Ms - a.latency(p)
}

// group returns the placer's input for the i-th group: its place, its option, the size of
// its largest part, and its layers.
func (a *agent) group(i int, g group, options []partition.Round) []float64 {
	input := make([]float64, a.placer.in)
	input[0] = float64(i) / float64(len(a.sizes))
	input[1] = float64(g.name+1) / float64(len(a.names)+1)
	if len(options) > 0 {
		input[2] = weights(&options[0]) / a.total
	}
	for l := g.first; l < g.end; l++ {
		input[3+l] = 1
	}
	return input
}

// learn moves both policies along the mean gradient of the episodes.
func (a *agent) learn(episodes []*episode) {
	share := 1 / float64(len(episodes))
	for i := range a.sizes {
		rewards := make([]float64, a.partitioner.out)
		for _, ep := range episodes {
			rewards[ep.actions[i]] += share * ep.reward
		}
		input := a.layer(i)
		a.partitioner.forward(input)
		a.partitioner.reward(input, rewards)
	}
	for _, ep := range episodes {
		for i, input := range ep.inputs {
			rewards := make([]float64, 2)
			rewards[ep.placed[i]] = share * ep.reward
			a.placer.forward(input)
			a.placer.reward(input, rewards)
		}
	}
	a.partitioner.step()
	a.placer.step()
}
