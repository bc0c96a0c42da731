package shadows

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/shadow"
)

// decisions compares what is chosen by prediction with what was the cheapest by measurement. A
// request's price is that of two cores and of the memory for the time that it takes of them: with two
// cores, 0.5 GiB at 0.25 cores per GiB and 10 requests per second, 212.5 core-milliseconds.
type decisions struct {
	// price is that of a GiB in cores.
	price   float64
	worst   float64
	of      string
	without []string // models that cannot be divided
	decided int
}

// cost is the price of a request in core-milliseconds.
func cost(cores, gib, price, perSecond float64) float64 {
	return 1000 * (cores + price*gib) / perSecond
}

// option is a way with its measured price.
type option struct {
	name string
	cost float64
}

// regret is by how many per cent the option of that name is dearer than the cheapest one.
func regret(all []option, name string) (pct float64, taken, cheapest option) {
	cheapest = slices.MinFunc(all, func(a, b option) int { return cmp.Compare(a.cost, b.cost) })
	taken = all[slices.IndexFunc(all, func(o option) bool { return o.name == name })]
	return 100 * (taken.cost/cheapest.cost - 1), taken, cheapest
}

// add adds a model's regret, with weights of its own for each instance and with shared ones.
func (d *decisions) add(ctx context.Context, r *report.Report, s *subject, ways []way, rates map[string][]float64) error {
	if d.price == 0 {
		d.price = profile.CorePrice()
	}
	for _, account := range []shadow.Accounting{shadow.Own, shadow.Shared} {
		name, phi, err := s.cheapest(account, d.price)
		if err != nil {
			return err
		}
		if name == wayPair && phi.String() != s.shadowPhi.String() {
			w, rate, err := s.measured(ctx, phi, account)
			if err != nil {
				return err
			}
			ways, rates[w.name], name = append(ways, w), []float64{rate}, w.name
		}
		var all []option
		for _, w := range ways {
			if !slices.Contains(w.accounts, account) {
				continue
			}
			gib, err := s.gib(w, account)
			if err != nil {
				return err
			}
			all = append(all, option{w.name, cost(float64(len(w.both)), gib, d.price, rig.Median(rates[w.name]))})
		}
		pct, taken, best := regret(all, name)
		of := fmt.Sprintf("%s.%s", s.name, account)
		r.Add("decision."+of+".regret_pct", pct, "%", fmt.Sprintf("%s is taken: %.1f core-ms per request; the cheapest is %s: %.1f", taken.name, taken.cost, best.name, best.cost))
		if d.decided++; pct >= d.worst {
			d.worst, d.of = pct, of
		}
	}
	return nil
}

// cheapest is the way that [shadow.Cheapest] takes, and the pair's part.
func (s *subject) cheapest(account shadow.Accounting, price float64) (name string, phi shadow.Phi, err error) {
	o := s.options()
	o.Memory, o.Rho = account, price
	p, twins, take, err := shadow.Cheapest(s.layers, o, 2*s.Rows)
	if err != nil {
		return "", nil, err
	}
	fmt.Fprintf(s.o.Log, "%s, %s weights: by prediction a request costs %.1f core-ms of twins, %.1f of a pair with %v\n", s.name, account, twins.Cost, p.Cost, p.Phi)
	switch {
	case take:
		return wayPair, p.Phi, nil
	case account == shadow.Own:
		return wayElsewhere, nil, nil
	}
	return wayTwin, nil, nil
}

// measured measures a pair with another part.
func (s *subject) measured(ctx context.Context, phi shadow.Phi, account shadow.Accounting) (way, float64, error) {
	runs := runsOf(phi)
	helper, err := s.startShadow(ctx, fmt.Sprintf("shadow-%s", account), runs)
	if err != nil {
		return way{}, 0, err
	}
	w := way{
		name: wayCheapest, clients: []*process{s.body, s.body}, rows: s.pairRows(), both: []*process{s.body, helper},
		before:  func(ctx context.Context) error { return s.pairFor(ctx, runs, helper, false) },
		weights: s.layers.Weights(phi), accounts: []shadow.Accounting{account},
	}
	rate, err := s.stream(ctx, w)
	fmt.Fprintf(s.o.Log, "%s: %s, %v, %.2f rows/s\n", s.name, w.name, phi, rate)
	return w, rate, err
}

// gib is the memory that the processes of a way take in GiB: what they have for themselves and, between
// body and shadow, share, as measured, and the weights' size. Weights count for each process, or once
// for both.
func (s *subject) gib(w way, account shadow.Accounting) (float64, error) {
	total := s.layers.Weights(s.layers.All())
	if account == shadow.Own {
		total += w.weights
	}
	gib := float64(total) / (1 << 30)
	for _, p := range w.both {
		held, err := rig.Mapped(p.Process.Pid)
		if err != nil {
			return 0, err
		}
		gib += (held["Pss_Anon"] + held["Pss_Shmem"]) / 1024
	}
	return gib, nil
}

// report adds the worst regret.
func (d *decisions) report(r *report.Report) {
	if d.decided == 0 {
		return
	}
	note := fmt.Sprintf("%s; %d decisions at %.3f cores per GiB", d.of, d.decided, d.price)
	if len(d.without) > 0 {
		note += "; " + strings.Join(d.without, ", ") + " cannot be divided, so there is nothing to choose"
	}
	r.Add("decision.worst_regret_pct", d.worst, "%", note)
}
