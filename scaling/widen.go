package scaling

import (
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// An instance is widened if it then serves at least wideGain times as much for at most widePrice
// times as much.
const (
	wideGain  = 1.5
	widePrice = 1.1
)

// widen exchanges planned instances of a function that grows for larger ones in the same place,
// if these cost hardly more. Otherwise a load that rises in small steps gets one small instance
// after the other, each with its fixed part of the price, such as the memory. An instance gets no
// larger than the whole load needs.
//
// For example an instance of a variant costs 31 for its memory and 3 for a whole GPU's time. A
// fifth of the time costs 31.6 and serves 11 requests/s, three quarters cost 33.3 and serve 60.
// Under 80/s with 10/s missing, it gets three quarters.
func widen(p *pass, v *view, placed []placing.Placed) {
	if v.count() == 0 {
		return
	}
	options, choices := &p.engine.settings.Options, v.choices(v.demand, false)
	for k := range placed {
		x := &placed[k]
		at, ok := p.room.Find(x.Node)
		if !ok || x.Nodes != nil {
			continue
		}
		held, best := x.Config.Resources, -1
		room, most := p.room.Places[at].Node, widePrice*options.Weigh(held)
		room.Drop(held, x.Device)
		for i := range choices {
			c := &choices[i]
			if c.Artefact == x.Artefact && c.Cost <= most && c.Range.Up >= wideGain*x.Range.Up && c.Range.Up <= v.demand &&
				room.Fits(c.Config.Resources, v.Tenant) && (best < 0 || c.Range.Up > choices[best].Range.Up) {
				best = i
			}
		}
		if best >= 0 {
			p.room.Undo(at, held, x.Device)
			x.Candidate, x.Range = choices[best].Candidate, choices[best].Range
			x.Device = p.room.Take(at, x.Config.Resources, v.Tenant)
		}
	}
}
