package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
)

// drive sends load to the functions with an objective at url and prints the results.
func (f *upFlags) drive(ctx context.Context, s *runningProvider, url string, functions []stackFunction, out io.Writer) error {
	functions = slices.DeleteFunc(slices.Clone(functions), func(fn stackFunction) bool { return fn.slo() == 0 })
	if len(functions) == 0 {
		return fmt.Errorf("%s has no function with an objective for --demo; give one the annotation com.openfaas.slo.latency", f.stackFile)
	}
	targets := make([]load.Target, len(functions))
	for i, fn := range functions {
		t, err := target(ctx, url, fn)
		if err != nil {
			return err
		}
		if t.Rate, err = f.rate(i, len(functions)); err != nil {
			return err
		}
		targets[i] = t
	}
	before := s.counts()
	ran, err := load.Run(ctx, load.Options{Targets: targets, Duration: f.duration, Seed: 1, Progress: os.Stderr})
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	after := s.counts()
	rows := make([]demoRow, len(functions))
	for i, fn := range functions {
		d, _ := s.parts.Controller.Describe(fn.full())
		rows[i] = demoRow{TargetResult: ran.Targets[i], instances: configs(d.Instances),
			counts: after[fn.full()].sub(before[fn.full()])}
		rows[i].coldStarts = after[fn.full()].coldStarts
	}
	if f.json {
		return demoReport(rows).JSON(out)
	}
	return demoTable(out, rows)
}

// target returns a load target for a function, with random inputs of its model's shapes.
// at is the gateway's or the provider's address.
func target(ctx context.Context, at string, fn stackFunction) (load.Target, error) {
	url := at + "/function/" + fn.path()
	inputs, err := load.Metadata(ctx, http.DefaultClient, url, fn.Service)
	if err != nil {
		return load.Target{}, fmt.Errorf("%s: %w", fn.Service, err)
	}
	var bodies [][]byte
	var length int
	for seed := range uint64(16) {
		body, n, err := load.BinaryBody(inputs, 1, seed)
		if err != nil {
			return load.Target{}, fmt.Errorf("%s: %w", fn.Service, err)
		}
		bodies, length = append(bodies, body), n
	}
	header := http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}}
	return load.Target{Name: fn.Service, URL: url, Header: header, Body: load.Cycle(bodies...), Arrivals: load.Poisson, SLO: fn.slo()}, nil
}

func (f *upFlags) rate(i, n int) (float64, error) {
	switch len(f.rates) {
	case 1:
		return f.rates[0], nil
	case n:
		return f.rates[i], nil
	}
	return 0, fmt.Errorf("--rate has %d rates for %d functions: give one rate for all, or one for each", len(f.rates), n)
}

// demoRow is one function's row of the table.
type demoRow struct {
	load.TargetResult
	counts
	instances string
}

// configs summarises instances by config: "1 × ⟨8,1000m,0%⟩, 2 × ⟨4,500m,0%⟩".
func configs(instances []cluster.Instance) string {
	count := map[string]int{}
	var order []string
	for _, in := range instances {
		c := in.Config.String()
		if count[c]++; count[c] == 1 {
			order = append(order, c)
		}
	}
	slices.Sort(order)
	for i, c := range order {
		order[i] = fmt.Sprintf("%d × %s", count[c], c)
	}
	if len(order) == 0 {
		return "none"
	}
	return strings.Join(order, ", ")
}

func demoTable(out io.Writer, rows []demoRow) error {
	t := &report.Table{Columns: []report.Column{{Title: "function"}, {Title: "offered/s"}, {Title: "achieved/s"}, {Title: "p50 ms"}, {Title: "p95 ms"}, {Title: "p99 ms"},
		{Title: "SLO ms"}, {Title: "within SLO"}, {Title: "mean batch"}, {Title: "cold starts"}, {Title: "instances ⟨b,c,g⟩", Long: true}}}
	for _, r := range rows {
		text := fmt.Sprintf("%s\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.0f\t%.2f %%\t%.2f\t%d\t%s", r.Name, r.Offered, r.Achieved,
			milliseconds(r.Latency.P50), milliseconds(r.Latency.P95), milliseconds(r.Latency.P99), milliseconds(r.SLO),
			100*r.WithinSLO, r.meanBatch(), r.coldStarts, r.instances)
		t.Rows = append(t.Rows, strings.Split(text, "\t"))
	}
	if err := t.Write(out, false); err != nil {
		return err
	}
	for _, r := range rows {
		if r.FirstError != nil {
			fmt.Fprintf(out, "%s: %v\n", r.Name, r.FirstError)
		}
		if r.Lagged() {
			fmt.Fprintf(out, "%s: the load generator lagged behind its schedule by up to %.1f ms; the latencies include that\n", r.Name, milliseconds(r.Lag.Max))
		}
	}
	fmt.Fprintf(out, "%s, %s\n", report.Machine(), time.Now().Format(time.DateOnly))
	return nil
}

func demoReport(rows []demoRow) *report.Report {
	r := report.New("up --demo", time.Now())
	for _, row := range rows {
		row.AddTo(r, row.Name+".")
		r.Add(row.Name+".mean_batch", row.meanBatch(), "requests", "")
		r.Add(row.Name+".cold_starts", float64(row.coldStarts), "instances", "since the provider started")
		r.Add(row.Name+".instances", float64(strings.Count(row.instances, "⟨")), "configs", row.instances)
	}
	return r
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// counts holds a function's counters from the metrics.
type counts struct {
	batches, batched, coldStarts uint64
}

func (c counts) sub(o counts) counts {
	return counts{c.batches - o.batches, c.batched - o.batched, c.coldStarts - o.coldStarts}
}

func (c counts) meanBatch() float64 {
	if c.batches == 0 {
		return 0
	}
	return float64(c.batched) / float64(c.batches)
}

// counts reads the provider's own metrics, by full name.
func (s *runningProvider) counts() map[string]counts {
	out := map[string]counts{}
	families, err := s.registry.Gather()
	if err != nil {
		s.log.Error().Err(err).Msg("gather metrics")
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := label(m, "function")
			c := out[name]
			switch family.GetName() {
			case "faas_infer_batch_size":
				c.batches, c.batched = m.GetHistogram().GetSampleCount(), uint64(m.GetHistogram().GetSampleSum())
			case "faas_infer_cold_start_duration_seconds":
				c.coldStarts = m.GetHistogram().GetSampleCount()
			}
			out[name] = c
		}
	}
	return out
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
