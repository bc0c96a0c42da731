// Package shadows measures bodies with shadows (AsyFunc, SoCC 2023) against one whole instance and
// two, with real processes of one core each. Begin with [Bench.Run]; ways.go has what is compared.
package shadows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pairing"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// Bench says what is measured.
type Bench struct {
	// Models are names of the zoo or ONNX files. Phi is the shadow's blocks, "" to choose them.
	Models []string
	Phi    string
	// Rows are those of a whole instance's batch, and the most that a shadow computes at once; a
	// pair's batch has half as many more.
	Rows int
	// Rounds measure all ways in turn, each for Each.
	Rounds int
	Each   time.Duration
	// Decide are further models for which the ways are compared by cost. They are measured in
	// one round, each way for DecideEach.
	Decide     []string
	DecideEach time.Duration
	// Price is that of a GiB in cores, 0 for this machine's cores over its memory.
	Price float64
	// Database has the operators' times, "" to measure them in this run: what a busy machine has
	// measured misleads the choice of Φ.
	Database string
	// between is the time of tensors between a body and its shadow.
	between shadow.Transfer
}

// Check returns an error if the measures are out of their bounds. Divisions know batches of up to
// [pairing.MaxBatch] rows, so a pair's must not be larger.
func (b Bench) Check() error {
	if b.Rows < 2 || b.Rounds < 1 || b.Each <= 0 || b.DecideEach <= 0 || b.Price < 0 {
		return errors.New("--rows must be at least 2, --rounds at least 1, --each and --decide-each positive, --price not negative")
	}
	most := pairing.MaxBatch
	for most+most/2 > pairing.MaxBatch {
		most--
	}
	if b.Rows > most {
		return fmt.Errorf("--rows is %d: give at most %d, because a pair's batch has half as many more, and at most %d", b.Rows, most, pairing.MaxBatch)
	}
	return nil
}

// Zoo are the models whose decisions are compared by default: all but the wide networks, which are made
// to be cut over several instances, and MiniLM, whose rows have no fixed size.
func Zoo() []string {
	return slices.DeleteFunc(zoo.Names(), func(name string) bool { return strings.HasPrefix(name, "wrn-") || name == "minilm" })
}

// Run measures all models, the transport and the starts.
func (b Bench) Run(ctx context.Context, o rig.Options, r *report.Report) error {
	var err error
	if b.between, err = transfer(ctx, r); err != nil {
		return err
	}
	if b.Database == "" {
		dir, err := os.MkdirTemp("", "faas-infer-operators-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		b.Database = filepath.Join(dir, "operators.jsonl")
	}
	d := decisions{price: b.Price}
	for i, name := range b.Models {
		if err := b.one(ctx, o, r, name, &d, func(s *subject, rates map[string][]float64) error { return s.report(ctx, r, rates, i == 0) }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	b.Rounds, b.Each, b.Phi = 1, b.DecideEach, ""
	for _, name := range b.Decide {
		if slices.Contains(b.Models, name) {
			continue
		}
		if err := b.one(ctx, o, r, name, &d, nil); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	d.report(r)
	return nil
}

// one measures all ways of a model, reports on them and adds the model's decisions.
func (b Bench) one(ctx context.Context, o rig.Options, r *report.Report, name string, d *decisions, reported func(*subject, map[string][]float64) error) error {
	s, err := b.subject(ctx, o, name)
	if err != nil {
		return err
	}
	defer s.close()
	if s.phi == nil {
		d.without = append(d.without, s.name)
		return nil
	}
	ways, err := s.ways(ctx)
	if err != nil {
		return err
	}
	if reported == nil {
		ways = slices.DeleteFunc(ways, func(w way) bool { return w.accounts == nil })
	}
	rates, err := s.rounds(ctx, ways)
	if err != nil {
		return err
	}
	if reported != nil {
		if err := reported(s, rates); err != nil {
			return err
		}
	}
	return d.add(ctx, r, s, ways, rates)
}

// report adds the figures of a model.
func (s *subject) report(ctx context.Context, r *report.Report, rates map[string][]float64, starts bool) error {
	if err := s.ratios(r, rates); err != nil {
		return err
	}
	if err := s.counted(ctx, r); err != nil {
		return err
	}
	if err := s.difference(ctx, r); err != nil {
		return err
	}
	if err := s.memory(r); err != nil {
		return err
	}
	if starts {
		return s.starts(ctx, r)
	}
	return nil
}

// ratios adds the rates and their ratios. A round's ways are neighbours in time, so ratios are of
// rounds.
func (s *subject) ratios(r *report.Report, rates map[string][]float64) error {
	ratio := func(a, b string) (median float64, spread string) {
		var all []float64
		for i := range rates[a] {
			all = append(all, rates[a][i]/rates[b][i])
		}
		return rig.Median(all), fmt.Sprintf("; rounds from %.3f to %.3f", slices.Min(all), slices.Max(all))
	}
	for _, name := range []string{wayWhole, wayTwin, wayElsewhere, waySynchronous, wayPair} {
		r.Add(s.name+".rows_per_s."+name, rig.Median(rates[name]), "1/s", "median of the rounds")
	}
	for _, x := range []struct{ name, of, over, note string }{
		{"twin_over_whole", wayTwin, wayWhole, "2 if two cores that compute did not slow each other down"},
		{"pair_over_twin", wayPair, wayTwin, fmt.Sprintf("Φ is %s; the shadow begins the next batch meanwhile", s.phi)},
		{"synchronous_over_twin", waySynchronous, wayTwin, "the shadow waits (Eq. 6)"},
	} {
		median, spread := ratio(x.of, x.over)
		r.Add(s.name+".ratio."+x.name, median, "", x.note+spread)
	}
	return s.predicted(r, rates)
}

// predicted adds how far the pair's predicted time is from the measured one. The provider multiplies
// the layer profile's ratio of a pair to a body alone by what whole instances take (see
// profiler/correction); here these are the two of the twin, which compute beside each other as the pair
// does. The prediction without it is of a machine whose other core does nothing.
func (s *subject) predicted(r *report.Report, rates map[string][]float64) error {
	per := func(rows int, rate float64) float64 { return 1000 * float64(rows) / rate }
	measured := per(s.pairRows(), rig.Median(rates[wayPair]))
	alone := s.layers.Time(0, len(s.layers.Blocks), s.Rows, core)
	beside := per(s.Rows, rig.Median(rates[wayTwin])/2) / alone
	for _, x := range []struct {
		name, note string
		times      float64
	}{
		{"predicted_error_pct", fmt.Sprintf("the profile times %.3f, which whole instances take beside each other", beside), beside},
		{"predicted_error_pct.profile", "by the layer profile alone", 1},
	} {
		p, err := scaled(s.layers, x.times).Pair(s.shadowPhi, 1, s.options())
		if err != nil {
			return err
		}
		period := p.Splits[s.pairRows()-1].Period
		r.Add(s.name+"."+x.name, 100*math.Abs(period-measured)/measured, "%", fmt.Sprintf("%s: %.1f ms predicted, %.1f measured for %d rows", x.note, period, measured, s.pairRows()))
	}
	return nil
}

// scaled is a model whose blocks take that many times as long.
func scaled(m *shadow.Model, times float64) *shadow.Model {
	out := *m
	out.Blocks = slices.Clone(m.Blocks)
	for i := range out.Blocks {
		b := &out.Blocks[i]
		b.Ms = slices.Clone(b.Ms)
		for k := range b.Ms {
			b.Ms[k] = slices.Clone(b.Ms[k])
			for j := range b.Ms[k] {
				b.Ms[k][j] *= times
			}
		}
	}
	return &out
}

// counted adds the rows of Φ that the shadow computed, and the jobs that it did not deliver.
func (s *subject) counted(ctx context.Context, r *report.Report) error {
	_, text, err := rig.Get(ctx, &http.Client{Transport: s.body.over}, "http://instance/metrics")
	if err != nil {
		return err
	}
	sums := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "faas_infer_instance_shadow_"), " ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			kind, _, _ := strings.Cut(name, "{reason")
			sums[kind] += n
		}
	}
	body, shadow := sums[`rows_total{by="body"}`], sums[`rows_total{by="shadow"}`]
	r.Add(s.name+".shadow_rows_pct", 100*shadow/(body+shadow), "%", "rows of Φ that the shadow computed, both ways")
	r.Add(s.name+".fallbacks", sums["fallbacks_total"], "", "jobs that the body computed instead")
	return nil
}

// difference compares the pair's answers with the whole model's.
func (s *subject) difference(ctx context.Context, r *report.Report) error {
	if err := s.pairWith(ctx, s.helper, false); err != nil {
		return err
	}
	want, err := s.infer(ctx, s.whole, s.pairRows())
	if err != nil {
		return err
	}
	most := 0.0
	for range 3 {
		got, err := s.infer(ctx, s.body, s.pairRows())
		if err != nil {
			return err
		}
		for i := range want {
			if len(got[i].Data) != len(want[i].Data) {
				return fmt.Errorf("the pair's %q has %d bytes, not %d", want[i].Name, len(got[i].Data), len(want[i].Data))
			}
			for at := 0; want[i].Type == tensor.FP32 && at < len(want[i].Data); at += 4 {
				a := math.Float32frombits(binary.LittleEndian.Uint32(want[i].Data[at:]))
				b := math.Float32frombits(binary.LittleEndian.Uint32(got[i].Data[at:]))
				most = max(most, math.Abs(float64(a)-float64(b)))
			}
		}
	}
	r.Add(s.name+".max_difference", most, "", "between the pair's answers and the whole model's")
	return nil
}

// memory adds what the whole instance and the shadow have mapped and touched: as if each was alone
// on its node, with weights of its own.
func (s *subject) memory(r *report.Report) error {
	var mib [2]float64
	for i, p := range []*process{s.whole, s.helper} {
		held, err := rig.Mapped(p.Process.Pid)
		if err != nil {
			return err
		}
		mib[i] = held["Rss"]
	}
	note := fmt.Sprintf("resident with weights of its own, after batches of %d rows", s.Rows)
	r.Add(s.name+".memory.whole_mib", mib[0], "MiB", note)
	r.Add(s.name+".memory.shadow_mib", mib[1], "MiB", note)
	r.Add(s.name+".memory.shadow_over_whole", mib[1]/mib[0], "", "")
	return nil
}
