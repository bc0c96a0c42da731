package reproduction

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/figure"
	"github.com/faas-infer/faas-infer/lab/figure/draw"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/lab/scenario"
)

// The notes of all commands of the lab say what a paper has.
func TestPublishedValuesInNotes(t *testing.T) {
	for _, c := range []struct {
		note, where string
		value       float64
	}{
		{"paper 2952 (Fig. 11)", "Fig. 11", 2952},
		{"while 3 % miss their objective; paper 0.42 (Fig. 12(a), relative)", "Fig. 12(a), relative", 0.42},
		{"against HHP of four hours; paper -25.2 (Fig. 16, γ = 0.5)", "Fig. 16, γ = 0.5", -25.2},
		{"paper: best −23.4 (Fig. 10)", "Fig. 10", -23.4},
		{"paper 1.6; 811 ms whole, 109 in 3 rounds on 4 functions", "", 1.6},
	} {
		v, where, ok := ofPaper(c.note)
		if !ok || v != c.value || where != c.where {
			t.Errorf("%q: %v, %q, %v", c.note, v, where, ok)
		}
	}
	for _, note := range []string{"", "answered, also late", "paper: up to 96, 12 above batch (Fig. 12)"} {
		if v, _, ok := ofPaper(note); ok {
			t.Errorf("%q has %v", note, v)
		}
	}
}

func TestJudge(t *testing.T) {
	results := []report.Result{
		{Name: "a/max_rps.infless-release", Value: 80, Note: "paper 100 (Fig. 11)"},
		{Name: "a/max_rps.infless", Value: 50, Note: "paper 100 (Fig. 11)"},
		{Name: "a/max_rps.faas-infer", Value: 120},
		{Name: "a/change.lsth", Value: -3, Note: "paper -25 (Fig. 16)"},
		{Name: "a/error", Value: 12},
		{Name: "a/close", Value: 12},
		{Name: "a/none", Value: 1},
	}
	claims := judge([]rule{
		{pattern: "a/max_rps.*", because: "we attribute it to rounding"}, {pattern: "a/change.*", test: sign},
		{pattern: "a/error", test: most, paper: 9, where: "§VI"}, {pattern: "a/close", paper: 10, part: 0.1},
		{pattern: "a/none", test: most}, {pattern: "a/*", because: "it is taken already"},
	}, results)
	want := []struct {
		paper, here, ours float64
		verdict           string
	}{
		{100, 80, 120, "repeated (within 25 %)"}, {100, 50, 120, "not (within 25 %); we attribute it to rounding"}, {-25, -3, math.NaN(), "repeated (the sign)"}, {9, 12, math.NaN(), "not (at most); the cause is unknown"}, {10, 12, math.NaN(), "not (within 10 %); the cause is unknown"},
	}
	if len(claims) != len(want) {
		t.Fatalf("%+v", claims)
	}
	for i, w := range want {
		c := claims[i]
		if c.Paper != w.paper || c.Here != w.here || c.Ours != w.ours && !math.IsNaN(w.ours) || c.Verdict != w.verdict {
			t.Errorf("%+v, want %+v", c, w)
		}
	}
}

// The patterns are valid, and each is of a part of its seed.
func TestSeeds(t *testing.T) {
	for _, s := range Seeds() {
		parts := map[string]bool{}
		for _, p := range s.parts {
			if parts[p.name] || !strings.HasPrefix(p.command, "faas-infer-lab ") {
				t.Errorf("%s: part %s, %q", s.Name, p.name, p.command)
			}
			parts[p.name] = true
		}
		for _, r := range s.rules {
			if _, err := path.Match(r.pattern, ""); err != nil {
				t.Errorf("%s: %q: %v", s.Name, r.pattern, err)
			}
			if of, _, _ := strings.Cut(r.pattern, "/"); !parts[of] {
				t.Errorf("%s: %q is of no part", s.Name, r.pattern)
			}
		}
	}
	// A scenario that names no policies gets all.
	if got := everyOf(scenario.Variants); slices.Contains(got, "batch") || !slices.Contains(got, "infaas") || !slices.Contains(everyOf(scenario.ColdStart), "batch") {
		t.Errorf("%v", got)
	}
	if _, err := ByName("mark"); err == nil || !strings.Contains(err.Error(), `unknown seed "mark": it is one of infless, batch`) {
		t.Errorf("%v", err)
	}
}

// A run writes the page, replaces earlier drawings, and says which part failed.
func TestRunAndWrite(t *testing.T) {
	figured := draw.Drawing{Name: "fig11", Figure: plot.Figure{Title: "Figure 11", Panels: []plot.Panel{{Categories: []string{"a"}, Series: []plot.Series{plot.Bar("here", 0, false, 1)}}}}}
	fine := part{"one", "faas-infer-lab simulate one", func(_ context.Context, progress func(int, int)) (*figure.Outcome, error) {
		progress(1, 2)
		return &figure.Outcome{
			Results:  []report.Result{{Name: "max_rps.infless", Value: 90, Unit: "1/s", Note: "paper 100 (Fig. 11)"}},
			Tables:   []figure.Table{{Title: "t", Header: []string{"policy"}, Rows: [][]string{{"infless"}}}},
			Drawings: []draw.Drawing{figured},
		}, nil
	}}
	bare := part{"bare", "faas-infer-lab simulate bare", func(context.Context, func(int, int)) (*figure.Outcome, error) { return &figure.Outcome{}, nil }}
	s := Seed{Name: "paper", Paper: "A paper", About: "About it.", parts: []part{fine, bare}, rules: []rule{{pattern: "one/*"}}}
	dir, last := t.TempDir(), 0
	if err := os.MkdirAll(filepath.Join(dir, "paper"), 0o755); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "paper", "old.svg")
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := Run(t.Context(), s, Options{Progress: func(done, total int) {
		if done < last || done > total {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		last = done
	}})
	if err != nil || last != 200 {
		t.Fatal(err, last)
	}
	if err := o.Write(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "paper.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# A paper\n", "| 1 | Fig. 11 | `one/max_rps.infless` | 100 1/s | 90 1/s | – | repeated (within 25 %) |", "(paper/claims.svg)", "1 of 1 repeated.", "![Figure 11](paper/one-fig11.svg)", "- `faas-infer-lab simulate one`, 0 s\n- `faas-infer-lab simulate bare`, 0 s\n", "\n## one\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "\n## bare\n") {
		t.Errorf("a part without tables and drawings has a section in\n%s", page)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old drawing is still there: %v", err)
	}
	s.parts = append(s.parts, part{"two", "faas-infer-lab simulate two", func(context.Context, func(int, int)) (*figure.Outcome, error) { return nil, io.EOF }})
	if _, err := Run(t.Context(), s, Options{}); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "simulate two") {
		t.Errorf("%v", err)
	}
}

// A part that was kept is not run again, whichever commit ran it; the page then names the commits.
func TestKeep(t *testing.T) {
	dir, runs := t.TempDir(), map[string]int{}
	made := func(name string) part {
		return part{name, "faas-infer-lab simulate " + name, func(context.Context, func(int, int)) (*figure.Outcome, error) {
			runs[name]++
			return &figure.Outcome{
				Results:  []report.Result{{Name: "rate", Value: math.NaN()}, {Name: "max_rps", Value: 80, Note: "paper 100 (Fig. 11)"}},
				Tables:   []figure.Table{{Title: "t", Header: []string{"policy"}, Rows: [][]string{{name}}}},
				Drawings: []draw.Drawing{{Name: "fig", Figure: plot.Figure{Title: "Figure", Panels: []plot.Panel{{Categories: []string{"a"}, Series: []plot.Series{plot.Bar("here", 0, false, math.NaN())}}}}}},
			}, nil
		}}
	}
	fails := part{"two", "faas-infer-lab simulate two", func(context.Context, func(int, int)) (*figure.Outcome, error) { return nil, io.EOF }}
	s := Seed{Name: "paper", Paper: "A paper", parts: []part{made("one"), fails}, rules: []rule{{pattern: "*/max_rps"}}}
	var had []bool
	options := Options{Keep: dir, Ended: func(_ *Part, kept bool) { had = append(had, kept) }}
	at := func(commit string) {
		t.Helper()
		before := report.Commit
		t.Cleanup(func() { report.Commit = before })
		report.Commit = commit
	}
	at("first")
	if _, err := Run(t.Context(), s, options); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	at("second")
	s.parts[1] = made("two")
	o, err := Run(t.Context(), s, options)
	if err != nil || runs["one"] != 1 || runs["two"] != 1 || !slices.Equal(had, []bool{false, true, false}) {
		t.Fatal(err, runs, had)
	}
	if o.Report.Commit != "first, second" || len(o.Claims) != 2 || !math.IsNaN(o.Report.Results[0].Value) || !math.IsNaN(o.Parts[0].Drawings[0].Panels[0].Series[0].Points[0].Y) {
		t.Errorf("%+v %+v", o.Report, o.Claims)
	}
	var page strings.Builder
	if err := o.Page(&page, "paper"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"commit `first, second`.", "- `faas-infer-lab simulate one`, 0 s, commit `first`\n", "two`, 0 s, commit `second`\n", "## one\n", "(paper/one-fig.svg)"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, page.String())
		}
	}
	// A part whose command has changed runs again.
	s.parts[0].command += " --seed 2"
	if _, err := Run(t.Context(), s, options); err != nil || runs["one"] != 2 || runs["two"] != 1 {
		t.Error(err, runs)
	}
	if err := os.WriteFile(keepFile(dir, s, s.parts[0]), []byte("cut off"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), s, options); err == nil || !strings.Contains(err.Error(), "paper-one.gob keeps no outcome: remove it") {
		t.Errorf("%v", err)
	}
}
