package figure

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/figure/draw"
	"github.com/faas-infer/faas-infer/lab/plot"
)

// day is a function's day in each of several ways: the buffers, the largest size, the cheapest.
type day struct {
	SLO      time.Duration
	quantile float64
	ways     []way
}

// way is one way to serve the day's requests.
type way struct {
	name  string
	hours []hour
}

func (b *buffered) way(name string) way { return way{name, b.hours} }

// way returns the day with one call per request. Times are deterministic, so all requests
// have the same latency.
func (a alone) way(name string, hours []hour) way {
	w := way{name: name}
	for _, h := range hours {
		one := hour{requests: h.requests, batches: h.requests, cost: a.cost * float64(h.requests), memory: float64(a.memory>>20) * float64(h.requests)}
		if h.requests > 0 {
			one.latencies = []float64{a.exec.Seconds()}
		}
		w.hours = append(w.hours, one)
	}
	return w
}

// percentile returns a percentile of the latencies in s, NaN if there are no requests.
func (h *hour) percentile(q float64) float64 {
	n := len(h.latencies)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(h.latencies)
	return h.latencies[max(0, int(math.Ceil(q*float64(n)))-1)]
}

// daySums sums up a way's day.
type daySums struct {
	requests, batches, tunings, missed int
	// cost is the mean of a request. worst is the highest percentile of an hour, divided
	// by the SLO.
	cost, worst float64
}

func (d *day) sum(w way) (s daySums) {
	for i := range w.hours {
		h := &w.hours[i]
		s.requests, s.batches, s.tunings = s.requests+h.requests, s.batches+h.batches, s.tunings+h.tunings
		s.cost += h.cost
		if p := h.percentile(d.quantile) / d.SLO.Seconds(); p > 0 {
			s.worst = max(s.worst, p)
			if p > 1 {
				s.missed++
			}
		}
	}
	s.cost /= max(1, float64(s.requests))
	return s
}

// wayNames are the names of the ways in results.
var wayNames = []string{baselines.Batch, baselines.BatchPublished, "one_to_one_largest", "one_to_one_cheapest"}

// largest is the index of the way with one call per request at the largest size; the one at the
// cheapest follows.
const largest = 2

// results adds the day's tables and figures.
func (d *day) results(out *Outcome, name string) {
	label := fmt.Sprintf("p%g", 100*d.quantile)
	t := Table{
		Title:  fmt.Sprintf("%s: BATCH's buffer, tuned as the arrivals change, and one call for each request. The objective is %s within %v.", name, label, d.SLO),
		Header: []string{"way", "requests", "worst hour's " + label + " / SLO", "hours above", "cost of 1000", "cost %", "requests a batch", "tunings"},
		Notes:  []string{"cost %: of one request at a time at the largest size. BATCH Fig. 14 has the same ways, on other traces."},
	}
	var sums []daySums
	for _, w := range d.ways {
		sums = append(sums, d.sum(w))
	}
	for i, s := range sums {
		t.row(d.ways[i].name, fmt.Sprint(s.requests), s.worst, fmt.Sprint(s.missed), 1000*s.cost, percent(s.cost, sums[largest].cost), float64(s.requests)/max(1, float64(s.batches)), fmt.Sprint(s.tunings))
		end := "." + name + "." + wayNames[i]
		out.add("worst_hour_over_slo"+end, s.worst, "", label+" of the worst hour, divided by the SLO")
		out.add("hours_above_slo"+end, float64(s.missed), "hours", "")
		out.add("cost_per_request"+end, s.cost, "", "")
	}
	out.Tables = append(out.Tables, t)
	for i, of := range buffers {
		out.add("cost_ratio."+name+"."+wayNames[i]+"_over_largest", sums[i].cost/sums[largest].cost, "", "")
		out.add("cost_ratio."+name+"."+wayNames[i]+"_over_cheapest", sums[i].cost/sums[largest+1].cost, "", "")
		out.Tables = append(out.Tables, d.hourly(name+", "+of.name, label, d.ways[i].hours))
	}
}

// hourly returns the table of a buffer's day hour by hour (BATCH Fig. 15).
func (d *day) hourly(name, label string, hours []hour) Table {
	t := Table{
		Title:  name + ": hour by hour.",
		Header: []string{"hour", "requests/s", label + " / SLO", "cost %", "requests a batch", "timeout ms", "memory MB", "tunings"},
	}
	for i := range hours {
		h := &hours[i]
		n := float64(h.batches)
		t.row(fmt.Sprint(i), float64(h.requests)/3600, h.percentile(d.quantile)/d.SLO.Seconds(), percent(h.cost, d.ways[largest].hours[i].cost),
			float64(h.requests)/n, 1000*h.timeout/n, h.memory/n, fmt.Sprint(h.tunings))
	}
	return t
}

// drawing draws Fig. 14's latency and cost, and Fig. 15.
func (d *day) drawing(name string) draw.Drawing {
	line := func(name string, colour int, hours []hour, of func(i int, h *hour) float64) plot.Series {
		s := plot.Series{Name: name, Mark: plot.Line, Colour: colour}
		for i := range hours {
			s.Points = append(s.Points, plot.Point{X: float64(i), Y: of(i, &hours[i])})
		}
		return s
	}
	panel := func(title, y string) plot.Panel {
		return plot.Panel{Title: title, X: plot.Axis{Label: "hour"}, Y: plot.Axis{Label: y}}
	}
	latency, cost := panel("Latency", fmt.Sprintf("p%g / SLO", 100*d.quantile)), panel("Cost", "relative to the largest size")
	for k, w := range d.ways {
		latency.Series = append(latency.Series, line(w.name, k, w.hours, func(_ int, h *hour) float64 { return h.percentile(d.quantile) / d.SLO.Seconds() }))
		cost.Series = append(cost.Series, line(w.name, k, w.hours, func(i int, h *hour) float64 { return h.cost / d.ways[largest].hours[i].cost }))
	}
	panels := []plot.Panel{latency, cost}
	for _, p := range []struct {
		title, y string
		of       func(i int, h *hour) float64
	}{
		{"Batch size", "requests", func(_ int, h *hour) float64 { return float64(h.requests) / float64(h.batches) }},
		{"Timeout", "ms", func(_ int, h *hour) float64 { return 1000 * h.timeout / float64(h.batches) }},
		{"Memory", "MB", func(_ int, h *hour) float64 { return h.memory / float64(h.batches) }},
		{"Load", "requests/s", func(_ int, h *hour) float64 { return float64(h.requests) / 3600 }},
	} {
		one := panel(p.title, p.y)
		for k, of := range buffers {
			one.Series = append(one.Series, line(of.name, k, d.ways[k].hours, p.of))
		}
		panels = append(panels, one)
	}
	return draw.Drawing{Name: "batch-fig14-" + name, Figure: plot.Figure{
		Title:  "BATCH (SC 2020) Fig. 14 and 15: " + name,
		Note:   "Simulated, on another trace than the paper's. Latency and cost of each hour; below, what the optimiser has chosen.",
		Panels: panels,
	}}
}
