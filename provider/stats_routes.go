package provider

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/history"
	"github.com/faas-infer/faas-infer/provider/web"
)

const defaultStepS = history.Step

// statsRoutes serves how functions do now, how they did in the last hour, and how they would do.
type statsRoutes struct{ server *Server }

// asked is the part of the functions that a request asks for. Without a function, the namespace may be "*".
func (s statsRoutes) asked(r *http.Request) (audienceKey, error) {
	q := r.URL.Query()
	if err := s.server.restored.wait(r.Context()); err != nil {
		return audienceKey{}, err
	}
	name := q.Get("function")
	if name == "" {
		return audienceKey{namespace: cmp.Or(q.Get("namespace"), DefaultNamespace)}, nil
	}
	a, err := resolve(name, q.Get("namespace"))
	if err != nil {
		return audienceKey{}, err
	}
	_, err = s.one(r.Context(), a)
	return audienceKey{a.namespace, a.name}, err
}

// one finds a function, also one that is being restored.
func (s statsRoutes) one(ctx context.Context, a address) (*deployed, error) {
	d, err := s.server.findOrAdopt(ctx, a, listPatience)
	if missing := s.server.restored.find(a.full()); err != nil && missing != nil {
		return missing, nil
	}
	return d, err
}

// show is GET /system/stats.
func (s statsRoutes) show(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	series, err := parseSpan(q.Get("window"), q.Get("step"))
	if err != nil {
		return err
	}
	k, err := s.asked(r)
	if err != nil {
		return err
	}
	s.readTensors(r.Context(), k)
	text, err := s.server.watcher.answer(r.Context(), s.server.now(), k, series)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n'))
	return nil
}

// answer makes the answer to GET /system/stats.
func (w *watcher) answer(ctx context.Context, now time.Time, k audienceKey, series span) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sampleAll(now)
	w.askedAt = w.at
	for _, d := range everyFunction(w.server) {
		if f := w.functions[d.Name]; f == nil || f.d != d || k.function != "" && k.selects(d.Deployment.Namespace, d.Deployment.Service) {
			w.look(w.at, w.sample(w.at, d)) // It was deployed in this second, or is looked at closely.
		}
	}
	all := w.selected(k)
	if err := series.check(len(all)); err != nil {
		return nil, err
	}
	texts := make([][]byte, len(all))
	for i, f := range all {
		if whole := k.function != ""; whole || series.step > 0 {
			texts[i] = w.renderMore(f, whole, series)
		} else {
			texts[i] = w.render(f)
		}
	}
	return w.appendStats(nil, now, cmp.Or(series.step, defaultStepS), texts, nil, w.machines(ctx)), nil
}

// stream is GET /system/stream.
func (s statsRoutes) stream(w http.ResponseWriter, r *http.Request) error {
	k, err := s.asked(r)
	if err != nil {
		return err
	}
	if s.server.inFlight.Closed() {
		return errDraining
	}
	s.readTensors(r.Context(), k)
	v, first, err := s.server.watcher.join(r.Context(), s.server.now(), k)
	if err != nil {
		return err
	}
	defer s.server.watcher.leave(k, v)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // Proxies pass events on at once.
	s.server.watcher.follow(w, r, first, v)
	return nil
}

// The answer of POST /system/plan/NAME.
type (
	planAnswer struct {
		Fits     bool   `json:"fits"`
		Sentence string `json:"sentence"`
		planParts
		Current planParts `json:"current"`
	}
	planParts struct {
		SLO       float64         `json:"slo_ms"`
		Rate      float64         `json:"rate_per_s"`
		Instances []statsInstance `json:"instances"`
		Cost      int             `json:"cost_millicores"`
		CostGPU   int             `json:"cost_gpu_pct"`
		Carries   float64         `json:"carries_per_s"`
	}
)

// maxPlanRate is the highest load in requests per second that a plan may be asked for.
const maxPlanRate = 1_000_000

// plan is POST /system/plan/NAME: what the planner would do at another objective or load. It changes nothing.
func (s statsRoutes) plan(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		SLO       string   `json:"slo"`
		Rate      *float64 `json:"rate"`
		Namespace string   `json:"namespace"`
	}
	if err := s.server.changes.read(w, r, `an object with "slo" and "rate"`, &body); err != nil {
		return err
	}
	a, err := resolve(mux.Vars(r)["name"], body.Namespace, r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	d, err := s.one(r.Context(), a)
	if err != nil {
		return err
	}
	if _, ok := s.server.controller.(PlanningController); !ok || !d.Inference.IsInference {
		return web.Refuse(http.StatusBadRequest, "function %s has no objective (com.openfaas.slo.latency), so there is no plan for it", d.Name)
	}
	now := s.server.watcher.current(s.server.now(), d)
	slo, rate := d.Inference.SLO, max(1, now.Rate)
	if body.SLO != "" {
		if slo, err = time.ParseDuration(body.SLO); err != nil || slo < annotation.LeastSLO || slo > annotation.LongestSLO {
			return badField("slo", body.SLO, fmt.Sprintf("a duration from %v to %v", annotation.LeastSLO, annotation.LongestSLO), "200ms")
		}
	}
	if body.Rate != nil {
		if rate = *body.Rate; !(rate > 0) || rate > maxPlanRate {
			return web.Refuse(http.StatusBadRequest, "rate is %g: it must be above 0 and at most %d requests per second, for example 400", rate, maxPlanRate)
		}
	}
	found, err := s.server.watcher.plan(r.Context(), d.Name, slo, rate)
	if err != nil {
		return err
	}
	web.WriteJSON(w, planOf(found, slo, rate, now))
	return nil
}

// plan asks the controller's planner, which has one.
func (w *watcher) plan(ctx context.Context, name string, slo time.Duration, rate float64) (WhatIf, error) {
	select {
	case w.planning <- struct{}{}:
	case <-ctx.Done():
		return WhatIf{}, ctx.Err()
	}
	defer func() { <-w.planning }()
	return w.server.controller.(PlanningController).Plan(ctx, name, slo, rate)
}

// current is what a function has now.
func (w *watcher) current(now time.Time, d *deployed) planParts {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sampleAll(now)
	f := w.sample(w.at, d)
	w.look(w.at, f)
	held := f.holds()
	return planParts{
		SLO: inMilliseconds(d.Inference.SLO), Rate: rounded(f.load(f.series.Minute())), Instances: blocks(f.state.Instances),
		Cost: held.CPU, CostGPU: held.GPU, Carries: rounded(f.state.Carries),
	}
}

// planOf says in a sentence what a plan would give.
func planOf(found WhatIf, slo time.Duration, rate float64, now planParts) planAnswer {
	out := planAnswer{Current: now}
	out.SLO, out.Rate, out.Instances, out.Carries = inMilliseconds(slo), rounded(rate), blocks(found.Instances), rounded(found.Carries)
	count := 0
	for i := range found.Instances {
		out.Cost += found.Instances[i].Holds.CPU
		out.CostGPU += found.Instances[i].Holds.GPU
		count++
	}
	for i := range out.Instances { // They would be ready.
		out.Instances[i].Ready = out.Instances[i].Count
	}
	out.Fits = found.Lack == "" && count > 0
	switch {
	case count == 0:
		out.Sentence = capital(cmp.Or(found.Why, "no instance fits")) + "."
	case out.Fits:
		verb := "carry"
		if count == 1 {
			verb = "carries"
		}
		out.Sentence = fmt.Sprintf("%s %s %s/s for %s.", names(out.Instances), verb, history.Rate(found.Carries), costText(out.Cost, out.CostGPU))
	default:
		out.Sentence = fmt.Sprintf("Only %s/s of %s/s: %s for %s, and %s.", history.Rate(math.Min(found.Carries, rate)), history.Rate(rate),
			names(out.Instances), costText(out.Cost, out.CostGPU), cmp.Or(found.Why, "there is no room for more"))
	}
	return out
}

// capital makes the first letter of a sentence large.
func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// names lists blocks in words: "4 instances of ⟨8, 1000m⟩ and 1 of ⟨2, 500m⟩".
func names(blocks []statsInstance) string {
	var parts []string
	for i, b := range blocks {
		config := fmt.Sprintf("⟨%d, %dm⟩", b.Batch, b.CPU)
		if b.GPU > 0 {
			config = fmt.Sprintf("⟨%d, %dm, %d %%⟩", b.Batch, b.CPU, b.GPU)
		}
		noun := ""
		if i == 0 {
			noun = " instances"
			if b.Count == 1 {
				noun = " instance"
			}
		}
		parts = append(parts, fmt.Sprintf("%d%s of %s", b.Count, noun, config))
	}
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

// costText is what instances hold: "4,000m and 50 % of a GPU".
func costText(cpu, gpu int) string {
	text := strconv.Itoa(cpu)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if text += "m"; gpu > 0 {
		text += fmt.Sprintf(" and %d %% of a GPU", gpu)
	}
	return text
}
