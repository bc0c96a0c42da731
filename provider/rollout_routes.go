package provider

import (
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/faas-infer/faas-infer/provider/rollout"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// RolloutStatus is the answer of GET /system/rollout/NAME.
type RolloutStatus struct {
	Function  string `json:"function"`
	Namespace string `json:"namespace"`
	// Revision and Image are those of the present revision.
	Revision uint64 `json:"revision"`
	Image    string `json:"image"`
	// Rollout is the one in progress, nil for none, and Last the end of the latest.
	Rollout *RolloutProgress  `json:"rollout,omitempty"`
	Last    *store.RolloutEnd `json:"last,omitempty"`
	// History are the latest revisions, the newest last.
	History []RolloutRevision `json:"history"`
}

// RolloutProgress is a rollout in progress.
type RolloutProgress struct {
	Revision uint64        `json:"revision"`
	Image    string        `json:"image"`
	Phase    rollout.Phase `json:"phase"`
	Steps    []int         `json:"steps_pct"`
	Share    int           `json:"share_pct"`
	Mirror   int           `json:"mirror_pct"`
	Began    time.Time     `json:"began"`
	Ready    bool          `json:"ready"`
	// Why is what it waits for.
	Why string `json:"why"`
	RolloutTally
}

// RolloutRevision is a revision in a function's history.
type RolloutRevision struct {
	Revision uint64    `json:"revision"`
	Image    string    `json:"image"`
	At       time.Time `json:"at"`
	How      string    `json:"how"`
}

// rolloutRoutes serves the routes of gradual rollouts.
type rolloutRoutes struct {
	*rollouts
	changes changes
}

// show is GET /system/rollout/NAME.
func (s rolloutRoutes) show(w http.ResponseWriter, r *http.Request) error {
	a, err := resolve(mux.Vars(r)["name"], r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	d, err := s.findOrAdopt(r.Context(), a, listPatience)
	if err != nil {
		return err
	}
	return s.write(w, d)
}

func (s rolloutRoutes) write(w http.ResponseWriter, d *deployed) error {
	h, err := s.revisions.list(d.address())
	if err != nil {
		return err
	}
	out := RolloutStatus{Function: d.Deployment.Service, Namespace: d.Deployment.Namespace, Revision: d.Revision, Image: d.Deployment.Image,
		Last: h.Last, History: []RolloutRevision{}, Rollout: s.progress(d.Name)}
	for _, v := range h.Revisions {
		out.History = append(out.History, RolloutRevision{Revision: v.Revision, Image: v.Deployment.Image, At: v.At, How: v.How})
	}
	web.WriteJSON(w, out)
	return nil
}

// progress is the rollout of a function, nil if there is none.
func (s *rollouts) progress(name string) *RolloutProgress {
	r := s.ofFunction(name)
	if r == nil {
		return nil
	}
	next := r.split.candidate.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	state, tally, why, ready := r.state, r.tally(), r.why, r.split.ready.Load()
	if told := r.stand.last; r.stand.following && told.Revision == r.revision {
		state.Phase, state.Step, state.Began, tally, ready = told.Phase, told.Step, told.Began, told.Tally, told.Ready
	}
	return &RolloutProgress{
		Revision: r.revision, Image: next.Deployment.Image, Phase: state.Phase, Steps: append([]int{}, r.plan.Steps...),
		Share: state.Share(r.plan), Mirror: r.plan.Mirror, Began: state.Began, Ready: ready, Why: why, RolloutTally: tally,
	}
}

// change is POST /system/rollout/NAME with an action: promote, abort or undo.
func (s rolloutRoutes) change(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Action    string `json:"action"`
		To        uint64 `json:"to"`
		Namespace string `json:"namespace"`
	}
	if err := s.changes.read(w, r, `an object with "action"`, &body); err != nil {
		return err
	}
	a, err := resolve(mux.Vars(r)["name"], body.Namespace, r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	if _, err := s.findOrAdopt(r.Context(), a, changePatience); err != nil {
		return err
	}
	switch body.Action {
	case "promote", "abort":
		err = s.endByUser(r, a, body.Action == "promote")
	case "undo":
		_, err = s.undo(r.Context(), a, body.To)
	default:
		err = web.Refuse(http.StatusBadRequest, "action is %q: it must be promote, abort or undo", web.Clip(body.Action))
	}
	if err != nil {
		return err
	}
	d, err := s.find(a)
	if err != nil {
		return err
	}
	return s.write(w, d)
}

// endByUser ends the rollout of a function as a user asks. It returns when that is done.
func (s rolloutRoutes) endByUser(request *http.Request, a address, promote bool) error {
	r := s.ofFunction(a.full())
	if r == nil {
		return web.Refuse(http.StatusConflict, "no rollout of function %s is in progress", a.full())
	}
	present, err := s.find(a)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if present.Revision >= r.revision {
		r.mu.Unlock()
		return web.Refuse(http.StatusConflict, "revision %d of function %s is there already; to go back: faas-infer rollout undo %s",
			present.Revision, a.full(), a.name)
	}
	if r.acting {
		r.mu.Unlock()
		return web.Refuse(http.StatusConflict, "the rollout of function %s is ending already", a.full())
	}
	if promote && r.doomed != "" {
		r.mu.Unlock()
		return web.Refuse(http.StatusConflict, "the candidate of function %s must be removed, because %s", a.full(), r.doomed)
	}
	if promote && !r.split.ready.Load() {
		r.mu.Unlock()
		return web.Refuse(http.StatusConflict, "the candidate of function %s has no ready instance; wait for one, or abort the rollout", a.full())
	}
	r.acting = true
	if promote {
		r.state = r.state.Promote(r.tally().seen(), time.Now())
	}
	r.mu.Unlock()
	if promote {
		return s.promote(request.Context(), r, "a user promoted it")
	}
	return s.rollBack(request.Context(), r, aborted, "a user aborted it")
}

// RolloutSummary says how the rollouts of a function do, in sentences that change only with a step.
type RolloutSummary struct {
	// Progress is about the rollout in progress, "" for none. Failed is why the latest one was rolled back, "" if it was
	// not, or if there was none.
	Progress, Failed string
}

// sentence says how far a rollout is, "" for none.
func (p *RolloutProgress) sentence() string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("revision %d is %s and gets %d %% of the requests", p.Revision, p.Phase, p.Share)
}

// RolloutOf returns how the rollouts of a function do, by its full name.
func RolloutOf(s *Server, name string) RolloutSummary {
	a, err := resolve(name)
	if err != nil {
		return RolloutSummary{}
	}
	out := RolloutSummary{Progress: s.rollouts.progress(name).sentence()}
	if last := s.rollouts.revisions.last(a); last != nil && !last.Promoted {
		out.Failed = fmt.Sprintf("revision %d was rolled back: %s", last.Revision, last.Why)
	}
	return out
}
