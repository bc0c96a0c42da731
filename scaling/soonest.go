package scaling

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// soonest narrows the candidates of a cold function whose requests wait to those of the artefact
// that answers first: the one with the least time of loading and inference (INFaaS, Algorithm 1).
// For example one that loads in 2 s and infers in 100 ms comes before one with 3 s and 20 ms.
// Later plans may add other artefacts and change to the cheapest. It narrows nothing if a
// loading time is unknown, if the function prefers accuracy, or if no artefact suits all
// requests that wait.
func (v *view) soonest() {
	if v.Waiting <= 0 || v.Accurate || len(v.live)+len(v.parked)+len(v.old) > 0 || !various(v.Configs) {
		return
	}
	first, least := "", time.Duration(0)
	for _, c := range v.Configs {
		if c.Loading <= 0 {
			return
		}
		suits := !slices.ContainsFunc(v.sets, func(s set) bool { return s.waiting > 0 && !s.has(c.Artefact) })
		if all := c.Loading + c.Exec; suits && v.engine.settings.Meets(c, v.SLO) && (least == 0 || all < least) {
			first, least = c.Artefact, all
		}
	}
	if least > 0 {
		v.Configs = slices.DeleteFunc(slices.Clone(v.Configs), func(c capacity.Candidate) bool { return c.Artefact != first })
		v.sets = nil
	}
}
