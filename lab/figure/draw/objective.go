package draw

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Objective has a policy's figures at its highest load under one objective.
type Objective struct {
	Policy string
	// SLO is that of the first function.
	SLO time.Duration
	// PerResource is the number of requests in time for each weighted resource-second.
	PerResource float64
	// Latencies are those of each function, Configs those of the function Model.
	Latencies []Latency
	Model     string
	Configs   []sim.ConfigResult
}

// Latency is the mean time of waiting and of execution of a function's requests.
type Latency struct {
	Function    string
	Queue, Exec time.Duration
}

// Objectives draws Fig. 12(b), 13 and 15(b, c).
func Objectives(application string, all []Objective) []Drawing {
	if len(all) == 0 {
		return nil
	}
	drawings := []Drawing{perResource(application, all), batches(application, all)}
	if d := breakdown(application, all); len(d.Panels) > 0 {
		drawings = append(drawings, d)
	}
	return drawings
}

// policies lists the policies in order of appearance.
func policies(all []Objective) (names []string) {
	for _, o := range all {
		if !slices.Contains(names, o.Policy) {
			names = append(names, o.Policy)
		}
	}
	return names
}

// perResource draws Fig. 12(b).
func perResource(application string, all []Objective) Drawing {
	var here, published []plot.Series
	for _, name := range policies(all) {
		var xs, ys []float64
		for _, o := range all {
			if o.Policy == name {
				xs, ys = append(xs, milliseconds(o.SLO)), append(ys, o.PerResource)
			}
		}
		here = append(here, line(name, colour(name), false, xs, ys))
	}
	if application == "osvt" {
		by := Paper().BySLO
		published = []plot.Series{
			line("batch (paper)", colour(baselines.Batch), true, by.SLO, by.BATCH),
			line("infless (paper)", colour(systems.INFless), true, by.SLO, by.INFless),
		}
	}
	p := plot.Panel{
		Title: "throughput for each unit of resources, relative to the best, " + application,
		X:     plot.Axis{Label: "SLO (ms)"}, Y: plot.Axis{Label: "relative throughput"},
		Series: append(scaled(published), scaled(here)...),
	}
	f := plot.Figure{Title: "Figure 12(b): throughput under different objectives", Panels: []plot.Panel{p}}
	return Drawing{"fig12b-" + application, cited(f, relativeNote)}
}

// batches draws Fig. 13: one model's throughput by batch size and config.
func batches(application string, all []Objective) Drawing {
	f := plot.Figure{Title: "Figure 13: throughput by batch size, and configs of instances, " + all[0].Model}
	published := Paper().Batches
	for _, name := range policies(all) {
		sizes := []int{1, 2, 4, 8, 16, 32}
		parts := map[int][]float64{}
		var categories []string
		for _, o := range all {
			if o.Policy == name {
				categories = append(categories, inMilliseconds(o.SLO))
				for i, v := range shares(o.Configs, sizes) {
					parts[sizes[i]] = append(parts[sizes[i]], v)
				}
			}
		}
		f.Panels = append(f.Panels, stacked(name+", simulated", categories, sizes, parts, false))
		rows := map[string][][]float64{systems.INFless: published.INFless, baselines.Batch: published.BATCH}[name]
		if rows == nil || application != "osvt" {
			continue
		}
		categories, parts = nil, map[int][]float64{}
		for i, slo := range published.SLO {
			categories = append(categories, fmt.Sprintf("%g ms", slo))
			total := 0.0
			for _, v := range rows[i] {
				total += v
			}
			for k, v := range rows[i] {
				parts[sizes[k]] = append(parts[sizes[k]], v/total)
			}
		}
		f.Panels = append(f.Panels, stacked(name+", paper", categories, sizes[:4], parts, true))
	}
	f.Panels = append(f.Panels, configs(all)...)
	return Drawing{"fig13-" + application, cited(f, "Parts of 1, since the paper's totals are of another scale. Dots: instances by their CPU and GPU shares, area by their number.")}
}

// shares returns the parts of the requests that configs of each batch size served. A size
// in between counts as the next smaller one.
func shares(of []sim.ConfigResult, sizes []int) []float64 {
	parts := make([]float64, len(sizes))
	total := 0.0
	for _, c := range of {
		i, found := slices.BinarySearch(sizes, c.Config.Batch)
		if !found {
			i = max(0, i-1)
		}
		parts[i] += float64(c.Requests)
		total += float64(c.Requests)
	}
	for i := range parts {
		parts[i] /= max(1, total)
	}
	return parts
}

func stacked(title string, categories []string, sizes []int, parts map[int][]float64, published bool) plot.Panel {
	p := plot.Panel{Title: title, X: plot.Axis{Label: "SLO"}, Y: plot.Axis{Label: "part of the throughput", Max: 1}, Categories: categories, Stacked: true}
	for i, b := range sizes {
		p.Series = append(p.Series, plot.Bar(fmt.Sprintf("b=%d", b), i, published, parts[b]...))
	}
	return p
}

// configs draws Fig. 13(c): the instances under all objectives, by their shares.
func configs(all []Objective) []plot.Panel {
	p := plot.Panel{Title: "configs, all objectives", X: plot.Axis{Label: "CPU (cores)"}, Y: plot.Axis{Label: "GPU (% of SMs)"}}
	for _, name := range policies(all) {
		s := plot.Series{Name: name, Mark: plot.Dots, Colour: colour(name)}
		for _, o := range all {
			if o.Policy != name {
				continue
			}
			for _, c := range o.Configs {
				s.Points = append(s.Points, plot.Point{
					X: float64(c.Config.CPU) / 1000, Y: float64(c.Config.GPU), Size: c.InstanceSeconds,
					Says: fmt.Sprintf("b=%d under %s", c.Config.Batch, inMilliseconds(o.SLO)),
				})
			}
		}
		// Large dots must not cover small ones.
		slices.SortFunc(s.Points, func(a, b plot.Point) int { return cmp.Compare(b.Size, a.Size) })
		p.Series = append(p.Series, s)
	}
	if !drawable(p) {
		return nil
	}
	return []plot.Panel{p}
}

// breakdown draws Fig. 15(b, c): the waiting and execution times of requests under the
// lowest and the second highest objective, the paper's 150 and 350 ms.
func breakdown(application string, all []Objective) Drawing {
	f := plot.Figure{Title: "Figure 15(b, c): what latencies consist of, means"}
	for _, slo := range chosen(all) {
		p := plot.Panel{Title: "SLO " + inMilliseconds(slo), X: plot.Axis{Label: "function and policy"}, Y: plot.Axis{Label: "latency (ms)"}, Stacked: true}
		var queue, exec []float64
		if rows := map[time.Duration][][2]float64{150 * time.Millisecond: Paper().At150, 350 * time.Millisecond: Paper().At350}[slo]; rows != nil && application == "osvt" {
			p.Categories = append(p.Categories, "paper")
			queue, exec = append(queue, mean(rows, 0)), append(exec, mean(rows, 1))
		}
		for _, o := range all {
			if o.SLO != slo {
				continue
			}
			for _, l := range o.Latencies {
				p.Categories = append(p.Categories, l.Function+" "+o.Policy)
				queue, exec = append(queue, milliseconds(l.Queue)), append(exec, milliseconds(l.Exec))
			}
		}
		p.Series = []plot.Series{plot.Bar("execution", 0, false, exec...), plot.Bar("waiting", 5, false, queue...)}
		if len(p.Categories) > 0 {
			f.Panels = append(f.Panels, p)
		}
	}
	if application == "osvt" {
		f.Note = "The bar of the paper is the mean of its 40 instances: " + PaperSource + "."
	}
	return Drawing{"fig15bc-" + application, f}
}

// chosen returns the lowest and the second highest objective.
func chosen(all []Objective) []time.Duration {
	var slos []time.Duration
	for _, o := range all {
		slos = append(slos, o.SLO)
	}
	slices.Sort(slos)
	slos = slices.Compact(slos)
	if len(slos) < 3 {
		return slos
	}
	return []time.Duration{slos[0], slos[len(slos)-2]}
}

func mean(rows [][2]float64, column int) float64 {
	sum := 0.0
	for _, r := range rows {
		sum += r[column] / float64(len(rows))
	}
	return sum
}
