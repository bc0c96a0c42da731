package control

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/variant"
)

// Left returns what a function and its nodes leave to best-effort requests; false if the function
// is not deployed.
func Left(c *Controller, name string) (spare.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return spare.State{}, false
	}
	s := spare.State{Waiting: statsOf(fn).Waiting}
	for _, in := range fn.Instances {
		if !in.serves() {
			continue
		}
		s.Ready++
		switch in.follower.State() {
		case variant.Overloaded:
			s.Overloaded++
		case variant.Interfered:
			s.Interfered++
		case variant.Active, variant.Inactive:
		}
		for node := range in.Shares() {
			s.CPU = max(s.CPU, c.shares.of(time.Now(), node, c.nodes))
		}
	}
	return s, true
}

// InvokeSpare runs a best-effort request on an idle instance of a function, as
// [dispatch.InvokeSpare] does.
func InvokeSpare(c *Controller, name string, req *frame.Request) (*frame.Response, error) {
	c.mu.Lock()
	fn, ok := c.functions[name]
	c.mu.Unlock()
	if !ok {
		return nil, spare.ErrOccupied
	}
	classifier := fn.classing.classifier
	asks := classifier.current.Load().Binding(variant.Requirement{})
	classifier.rename(req)
	resp, err := dispatch.InvokeSpare(fn.dispatcher, req)
	if err == nil {
		err = classifier.name(resp, asks)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// shares are the parts of their CPU that nodes use. They are calculated at most once every
// spare.Pause, as many functions may ask.
type shares struct {
	keeper *keeper.Keeper[*instance]
	// cpu is that of [Options].
	cpu func(node string) (share float64, known bool)
	at  time.Time
	by  map[string]float64
}

// of returns the share that a node uses, infinite if that is not known. The lock is held.
func (s *shares) of(now time.Time, node string, nodes []cluster.Node) float64 {
	if s.by == nil || now.Sub(s.at) >= spare.Pause {
		s.at, s.by = now, s.used(nodes)
	}
	if share, ok := s.by[node]; ok {
		return share
	}
	return math.Inf(1)
}

// used returns the share that each node uses: what instances use by the latest reading, or
// what Options.CPU says if that is more. Without Options.CPU, instances of the other kind count
// with what they hold. The lock is held.
//
// For example, instances use 600 of a node's 4000 millicores, and ordinary functions hold 1000:
// 40 %.
func (s *shares) used(nodes []cluster.Node) map[string]float64 {
	sum := map[string]int{}
	for _, in := range s.keeper.Instances() {
		usage := in.Usage
		if usage == (cluster.Resources{}) {
			usage = in.Holds() // There is no reading.
		}
		for node, part := range cluster.Over(in.Node, in.Nodes, usage) {
			sum[node] += part.CPU
		}
	}
	by := make(map[string]float64, len(nodes))
	for _, n := range nodes {
		if s.cpu == nil {
			by[n.Name] = float64(sum[n.Name]+n.Others.CPU) / float64(n.Total.CPU)
		} else if share, known := s.cpu(n.Name); known {
			by[n.Name] = max(share, float64(sum[n.Name])/float64(n.Total.CPU))
		}
	}
	return by
}
