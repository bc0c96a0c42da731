package shadows

import (
	"errors"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pairing"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// This file asks the provider's engine which way it takes.

// patient is the objective in times of the largest batch. No way is too late: what the bench compares
// is what requests cost.
const patient = 20

// question is what the engine is asked: a body works, its function is short of more than any way serves,
// and its node has room for one more instance of the same share.
type question struct {
	account shadow.Accounting
	// price is that of a GiB in cores.
	price float64
	// configs are those of whole instances, with what such instances have shown.
	configs []capacity.Candidate
	// division is the way to help the body, nil if there is none.
	division *pairing.Division
}

// planned is the function, without instances.
func planned(configs []capacity.Candidate) scaling.Function {
	return scaling.Function{Name: "f", Revision: 1, SLO: patient * configs[len(configs)-1].Exec, Queue: capacity.LateBound, Configs: configs}
}

// asked is the name of the way that the engine takes.
func (s *subject) asked(q question) (string, error) {
	helps, err := q.helps()
	switch {
	case err != nil:
		return "", err
	case helps:
		return s.auto, nil
	}
	return wholeBy(q.account), nil
}

// helps reports whether the engine starts a shadow, and not another whole instance.
func (q question) helps() (bool, error) {
	const many = 64 // The node's price of memory counts, and not how much it has.
	f := planned(q.configs)
	largest := f.Configs[len(f.Configs)-1]
	f.SharedWeights = q.account == shadow.Shared
	for _, c := range f.Configs {
		f.Rate = max(f.Rate, 4*float64(c.Config.Batch)/c.Exec.Seconds())
	}
	f.Instances = []scaling.Running{{ID: "body", Node: "node", Config: largest.Config, Exec: largest.Exec, Mean: largest.Mean, Revision: 1, State: cluster.Ready, Paired: true}}
	if q.division != nil {
		f.Pairings = []scaling.Pairing{q.division.Pairing("", q.configs)}
	}
	node := cluster.Node{Name: "node", Total: cluster.Resources{CPU: many * core, Memory: int64(many / q.price * (1 << 30))}}
	node.Free = cluster.Resources{CPU: core, Memory: node.Total.Memory - largest.Config.Memory}
	settings := scaling.DefaultSettings()
	settings.Vertical = false // No way has more than a core for each process.
	plan := scaling.New(settings).Scale(time.Unix(1e6, 0), []scaling.Function{f}, []cluster.Node{node})
	for _, s := range plan.Start {
		if s.Role == cluster.Shadow {
			return true, nil
		}
	}
	if len(plan.Start) == 0 {
		return false, errors.New("the engine starts nothing")
	}
	return false, nil
}

// configs are the candidates of a whole instance on a core. Their times are the profile's, times what whole
// instances took of it beside each other; perSecond is the rows of one per second, 0 to leave that out.
func (s *subject) configs(perSecond float64) (all []capacity.Candidate) {
	m := s.layers
	ratio := 1.0
	if perSecond > 0 {
		ratio = 1000 * float64(s.Rows) / perSecond / m.Time(0, len(m.Blocks), s.Rows, core)
	}
	for rows := 1; rows <= s.pairRows(); rows++ {
		exec := time.Duration(ratio * m.Time(0, len(m.Blocks), rows, core) * float64(time.Millisecond))
		memory := m.Own + m.Weights(m.All()) + int64(rows)*m.Activations(m.All())
		all = append(all, capacity.Candidate{Config: cluster.Config{Batch: rows, Resources: cluster.Resources{CPU: core, Memory: memory}}, Exec: exec, Mean: exec})
	}
	return all
}

// divide finds the way to help the body that the provider would choose. It may be the pair that is
// measured anyway.
func (s *subject) divide() error {
	x := pairing.Divider{Model: s.layers, Transfer: s.between, Planned: planned(s.configs(0)), Limits: scaling.DefaultSettings().Options}
	all, err := x.Divide()
	if err != nil || len(all) == 0 {
		return err
	}
	d := &all[0]
	s.division, s.auto = d, wayAuto
	if split := d.Pair.Splits[s.pairRows()-1]; d.Pair.Phi.String() == s.shadowPhi.String() && d.Streams == 2 && split.Rows-split.Body <= s.Rows {
		s.auto = wayPair
	}
	return nil
}

// learn takes in what a pair has shown: its rows per second with batches of rows, on configs.
func learn(d *pairing.Division, rows int, perSecond float64, configs []capacity.Candidate) {
	alone := make([]time.Duration, len(configs))
	for i, c := range configs {
		alone[i] = c.Exec
	}
	took := float64(d.Streams*rows) / perSecond
	for range 100 { // The mean moves with each batch.
		d.Executed(time.Time{}, took/d.Table(alone)[rows-1].Seconds())
	}
}
