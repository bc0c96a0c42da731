package shadows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/papers/asyfunc/layers"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// decisions compares what the provider's engine chooses with what was the cheapest by measurement. A
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

// add adds a model's regret, with weights of its own for each instance and with shared ones. The provider's
// engine decides twice: by the layer profile and what whole instances have shown, and once more with what
// the pair has shown, if it has taken one. So a pair that it never tries stays as good as predicted.
func (d *decisions) add(ctx context.Context, r *report.Report, s *subject, ways []way, rates map[string][]float64) error {
	if d.price == 0 {
		d.price = layers.CorePrice()
	}
	for _, account := range []shadow.Accounting{shadow.Own, shadow.Shared} {
		q := question{account: account, price: d.price, configs: s.configs(rig.Median(rates[wholeBy(account)]) / 2), division: s.division}
		name, err := s.asked(q)
		if err != nil {
			return err
		}
		first := name
		if name == s.auto {
			seen := *s.division
			learn(&seen, s.pairRows(), rig.Median(rates[s.auto]), q.configs)
			q.division = &seen
			if name, err = s.asked(q); err != nil {
				return err
			}
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
		note := fmt.Sprintf("%s is taken: %.1f core-ms per request; the cheapest is %s: %.1f", taken.name, taken.cost, best.name, best.cost)
		if first != name {
			note += fmt.Sprintf("; %s was taken first", first)
		}
		r.Add("decision."+of+".regret_pct", pct, "%", note+s.doubt(account, d.price))
		if d.decided++; pct >= d.worst {
			d.worst, d.of = pct, of
		}
	}
	return nil
}

// wholeBy is the way of two whole instances in an accounting.
func wholeBy(account shadow.Accounting) string {
	if account == shadow.Own {
		return wayElsewhere
	}
	return wayTwin
}

// doubt says that the prediction cannot tell a pair from two whole instances, "" if it can: their costs
// differ by less than the margin of its times.
func (s *subject) doubt(account shadow.Accounting, price float64) string {
	if s.division == nil {
		return ""
	}
	o := shadow.Options{Body: core, Shadow: core, MaxRows: s.pairRows(), Transfer: s.between, Memory: account, Rho: price}
	twins, err := s.layers.Pair(s.layers.All(), 1, o)
	with, failed := s.layers.Pair(s.division.Pair.Phi, 1, o)
	if errors.Join(err, failed) != nil {
		return ""
	}
	if differ := math.Abs(with.Cost/twins.Cost - 1); differ < s.margin {
		return fmt.Sprintf("; by prediction their costs differ by %.1f %%, and its margin is %.1f %%", 100*differ, 100*s.margin)
	}
	return ""
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
