package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// stretch raises CPU quotas of instances that run, one after the other, for what
// a function is short of: that takes effect at once, where a new instance would
// have to start. Each gets the least that suffices, or else what helps most.
func (p *pass) stretch(v *view) {
	if !p.engine.settings.Vertical || len(v.live) == 0 || v.residual() == 0 {
		return
	}
	choices := v.choices(v.demand, false)
	known := map[cluster.Config][]choice{}
	for i := range v.live {
		in := &v.live[i]
		larger, ok := known[in.Config]
		if !ok {
			larger = others(choices, in.Config, true)
			known[in.Config] = larger
		}
		if len(larger) == 0 || in.State != cluster.Ready {
			continue
		}
		residual := v.residual()
		if residual == 0 {
			return
		}
		place, ok := p.space().find(in.Node)
		if !ok {
			continue
		}
		if c, ok := raise(larger, in.Config.CPU+p.space().places[place].free.CPU, v.bounds(in).Up, residual); ok {
			p.space().take(place, c.Config.Resources.Sub(in.Config.Resources))
			p.resize(v, i, c)
		}
	}
}

// raise picks the choice within so much CPU that takes residual more than up and
// needs the least CPU, or else the one that takes most.
func raise(larger []choice, cpu int, up, residual float64) (choice, bool) {
	var best choice
	gained := 0.0
	for _, c := range larger {
		gain := c.bounds.Up - up
		switch {
		case gain <= 0 || c.Config.CPU > cpu:
		case gained < residual && gain > gained,
			gain >= residual && c.Config.CPU < best.Config.CPU:
			best, gained = c, gain
		}
	}
	return best, gained > 0
}

// others are the choices that differ from a config in CPU alone, in more of it or
// in less, and feed as many threads: the others could not be had while an instance
// runs.
func others(choices []choice, config cluster.Config, more bool) []choice {
	var all []choice
	for _, c := range choices {
		same := c.Config
		same.CPU = config.CPU
		if same == config && c.Config.CPU != config.CPU && c.Config.CPU > config.CPU == more && c.Config.Threads() == config.Threads() {
			all = append(all, c)
		}
	}
	return all
}

// resize plans another quota for v's i-th instance.
func (p *pass) resize(v *view, i int, to choice) {
	v.changed()
	in := &v.live[i]
	in.Config, in.Exec, in.Mean = to.Config, to.Exec, to.Mean
	r := Resize{Function: v.Name, ID: in.ID, Config: to.Config, Exec: to.Exec, Mean: to.Mean}
	if at := slices.IndexFunc(p.plan.Resize, func(x Resize) bool { return x.ID == in.ID }); at >= 0 {
		p.plan.Resize[at] = r
		return
	}
	p.plan.Resize = append(p.plan.Resize, r)
}

// relax lowers the quota of one instance, if the load has been in need of less
// for the whole window, as for surplus instances. What it frees is there for
// later plans.
func (p *pass) relax(v *view) {
	s := p.engine.settings
	if !s.Vertical || len(v.live) == 0 {
		return
	}
	total := v.high()
	if v.peak >= Threshold(total, s.Alpha, s.Reading) {
		return
	}
	best, to, saved := -1, choice{}, 0
	var config cluster.Config
	var below []choice
	for i := range v.live {
		in := &v.live[i]
		if in.Config != config {
			config, below = in.Config, v.below(in.Config)
		}
		for _, c := range below {
			if less := in.Config.CPU - c.Config.CPU; in.State == cluster.Ready && less > saved && total.Up-v.peaked(in).Up+c.bounds.Up >= v.peak {
				best, to, saved = i, c, less
			}
		}
	}
	if best >= 0 {
		p.resize(v, best, to)
	}
}
