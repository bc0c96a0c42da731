package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/history"
)

// roomPause is after how many seconds a longer objective is looked for again, and unwatched how long after the last
// question for statistics nobody is taken to watch.
const (
	roomPause = 30
	unwatched = 60
)

// longer are the multiples of an objective that are tried where no node has room: a longer one allows larger batches.
var longer = []float64{1.5, 2, 4}

// spareLoad is how many times the load a plan must carry to be offered: the load is not even, and nobody wants to press
// the button twice.
const spareLoad = 1.25

// findRoom asks the planner for a longer objective with which the nodes have room for a function, at most for one
// function at a time and only while somebody watches. It plans without the lock.
func (w *watcher) findRoom(ctx context.Context) {
	if _, ok := w.server.controller.(PlanningController); !ok {
		return
	}
	w.mu.Lock()
	name, slo, from, rate := w.crowded()
	w.mu.Unlock()
	if name == "" {
		return
	}
	found := time.Duration(0)
	for _, by := range longer {
		next := history.Round(time.Duration(by * float64(from)))
		if plan, err := w.plan(ctx, name, next, rate); err == nil && plan.Lack == "" && plan.Carries >= spareLoad*rate {
			found = next
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.functions[name]; f != nil && f.d.Inference.SLO == slo && f.roomy != found {
		f.roomy, f.stale = found, true
	}
}

// crowded returns a function for which no node has room, or whose objective no config meets, and whose remedy was not
// looked for in a while; "" if there is none. With it come its objective, the shortest objective from which a longer
// one is looked for, and its load. The lock is held.
func (w *watcher) crowded() (name string, slo, from time.Duration, rate float64) {
	if w.viewers == 0 && w.at-w.askedAt > unwatched {
		return "", 0, 0, 0
	}
	for name, f := range w.functions {
		if f.state.Lack != LackRoom && f.state.Lack != LackSpeed {
			if w.at-f.roomyAt >= roomPause {
				f.roomy = 0
			}
			continue
		}
		if f.d.Inference.IsInference && f.state.Load > 0 && w.at-f.roomyAt >= roomPause {
			f.roomyAt = w.at
			return name, f.d.Inference.SLO, max(f.d.Inference.SLO, f.state.Least), f.state.Load
		}
	}
	return "", 0, 0, 0
}

// modelTensors are the inputs and outputs of a function's model, as an instance of the revision described them.
type modelTensors struct {
	revision        uint64
	inputs, outputs []statsTensor
	// asked is the second of the latest question, of the revision askedOf.
	asked   int64
	askedOf uint64
}

// tensorsAgain is how many seconds a question that got no answer is not asked again: it is a request like any other.
const tensorsAgain = 30

// tensorsPatience is how long an instance may take to describe its model.
const tensorsPatience = 2 * time.Second

// readTensors asks an instance of a function once a revision for the inputs and outputs of its model. It starts none: without a ready
// instance they stay unknown.
func (s statsRoutes) readTensors(ctx context.Context, k audienceKey) {
	d, ok := s.server.named(FullName(k.function, k.namespace))
	if !ok || !d.Inference.IsInference || d.isBroken() || !s.server.watcher.lacksTensors(s.server.now(), d) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tensorsPatience)
	defer cancel()
	name := d.Deployment.Service
	resp, err := d.dispatcher.Invoke(ctx, &frame.Request{Method: http.MethodGet, Path: "/v2/models/" + name, Header: http.Header{}})
	if err != nil || resp.Status != http.StatusOK {
		return // The next question asks again.
	}
	type described []struct {
		Name  string  `json:"name"`
		Type  string  `json:"datatype"`
		Shape []int64 `json:"shape"`
	}
	var model struct{ Inputs, Outputs described }
	if json.Unmarshal(resp.Body, &model) != nil {
		return
	}
	list := func(of described) (out []statsTensor) {
		for _, t := range of {
			out = append(out, statsTensor(t))
		}
		return out
	}
	s.server.watcher.setTensors(d, modelTensors{revision: d.Revision, inputs: list(model.Inputs), outputs: list(model.Outputs)})
}

// lacksTensors reports whether a function's model is not described yet, and an instance is ready that could.
func (w *watcher) lacksTensors(now time.Time, d *deployed) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sampleAll(now)
	f := w.sample(w.at, d)
	w.look(w.at, f)
	if f.model.revision == d.Revision {
		return false
	}
	if f.model.askedOf == d.Revision && w.at-f.model.asked < tensorsAgain {
		return false
	}
	f.model = modelTensors{}
	for i := range f.state.Instances {
		if f.state.Instances[i].shown() == instanceReady {
			f.model.asked, f.model.askedOf = w.at, d.Revision
			return true
		}
	}
	return false
}

func (w *watcher) setTensors(d *deployed, m modelTensors) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.functions[d.Name]; f != nil && f.d == d {
		f.model, f.stale = m, true
	}
}
