package text

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

const (
	// shortTokens is the maximum number of tokens of a short text.
	shortTokens = 32
	// shortShare is the rate of short texts beside long ones, as a share of the rate that the
	// provider reaches with the corpus. longRate is that of long texts in requests/s.
	shortShare, longRate = 0.25, 1.0
	// shortTime is how long both are sent.
	shortTime = 20 * time.Second
	// profiled is how long the provider may take to measure a model.
	profiled = 2 * time.Minute
	// relaxed is the objective of the function whose vectors are compared.
	relaxed = 10 * time.Second
)

// image is the function's.
const image = "subject:bench"

// ours measures the provider with a function as users deploy it, and returns its rate in requests/s.
func (u *run) ours(ctx context.Context, s *served) (rate float64, err error) {
	dir, err := os.MkdirTemp(u.dir, "ours-")
	if err != nil {
		return 0, err
	}
	d, err := u.o.Provider(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer d.Stop()
	if err := u.bundle(ctx, s, d); err != nil {
		return 0, err
	}
	f := rig.Function(rig.FunctionName, image, map[string]string{annotation.SLOLatency: u.SLO.String()})
	if err := d.DeployFunction(ctx, f); err != nil {
		return 0, err
	}
	t, err := s.target(openAI, d.URL+"/function/"+rig.FunctionName, u.corpus.texts)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(u.o.Log, "%s: ours\n", s.name)
	if err := errors.Join(s.right(ctx, t, profiled), d.AwaitProfile(ctx, u.o.Log, profiled)); err != nil {
		return 0, err
	}
	if chosen(u.Parts, PartRates) {
		if rate, err = s.trials.Rate(ctx, t, 0); err != nil {
			return 0, err
		}
		u.r.Add(fmt.Sprintf("rps.%s.ours", s.name), rate, "requests/s", fmt.Sprintf("SLO %v, no other option", u.SLO))
		u.step()
		if err := u.padding(ctx, s, d); err != nil {
			return 0, err
		}
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context, *served, *rig.Deployed) error
	}{{PartEmbeddings, u.embeddings}, {PartShort, func(ctx context.Context, s *served, d *rig.Deployed) error { return u.short(ctx, s, d, rate) }}, {PartCold, u.cold}} {
		if !chosen(u.Parts, part.name) {
			continue
		}
		fmt.Fprintf(u.o.Log, "%s: ours: %s\n", s.name, part.name)
		if err := part.measure(ctx, s, d); err != nil {
			return 0, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return rate, nil
}

// bundle makes a bundle of the model's folder, as users do.
func (u *run) bundle(ctx context.Context, s *served, d *rig.Deployed) error {
	c := exec.CommandContext(ctx, u.o.Program, "bundle", s.dir, "--image", image, "--root", filepath.Join(d.State, "bundles"))
	said, err := say(c)
	fmt.Fprintf(u.o.Log, "%s", said)
	return err
}

// padding reports how many of the tokens that the instances ran were padding.
func (u *run) padding(ctx context.Context, s *served, d *rig.Deployed) error {
	records, err := d.Records()
	if err != nil {
		return err
	}
	sums := map[string]float64{}
	for _, r := range records {
		if err := addMetrics(ctx, r.Socket, sums); err != nil {
			return err
		}
	}
	tokens, padding := sums["faas_infer_instance_tokens_total"], sums["faas_infer_instance_padding_tokens_total"]
	if tokens == 0 {
		return errors.New("the instances report no tokens")
	}
	u.r.Add("padding_waste_pct."+s.name, 100*padding/(tokens+padding), "%",
		fmt.Sprintf("of the tokens that %d instances ran, %.0f, aim <= 10", len(records), tokens+padding))
	return nil
}

// addMetrics adds the values of an instance's series without labels to sums.
func addMetrics(ctx context.Context, socket string, sums map[string]float64) error {
	client := rig.OverUnix(socket)
	defer client.CloseIdleConnections()
	status, text, err := rig.Get(ctx, client, "http://instance/metrics")
	if err != nil || status != http.StatusOK {
		return errors.Join(fmt.Errorf("the instance's metrics: status %d", status), err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if x, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			sums[name] += x
		}
	}
	return nil
}

// embeddings compares the vectors of all texts, and of long ones, with sentence-transformers'. Its
// function has time for the long ones.
func (u *run) embeddings(ctx context.Context, s *served, d *rig.Deployed) error {
	const exact = "exact"
	if err := d.Deploy(ctx, exact, image, relaxed); err != nil {
		return err
	}
	var most float64
	least := 1.0
	texts := append(slices.Clone(u.corpus.texts), u.corpus.long...)
	for i, text := range texts {
		got, err := vectorOf(ctx, d.URL, exact, text)
		if err != nil {
			return fmt.Errorf("text %d: %w", i, err)
		}
		most = max(most, difference(got, s.vectors[i]))
		if !math.IsInf(most, 1) {
			least = min(least, cosine(got, s.vectors[i]))
		}
	}
	u.r.Add("embeddings.max_difference."+s.name, most, "", fmt.Sprintf("of %d texts, against sentence-transformers, aim <= 1e-5", len(texts)))
	u.r.Add("embeddings.min_cosine."+s.name, least, "", "aim >= 0.9999")
	return d.Remove(ctx, exact)
}

// vectorOf asks a function of the provider at a URL for one text's vector.
func vectorOf(ctx context.Context, url, function, text string) ([]float32, error) {
	body, err := json.Marshal(map[string]any{"model": function, "input": text})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+openAI.path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", response.Status, strings.TrimSpace(string(answer)))
	}
	if err != nil {
		return nil, err
	}
	return openAI.decode(answer)
}

// short sends short texts beside ones of 512 tokens, and reports how many of the short ones are in
// time.
func (u *run) short(ctx context.Context, s *served, d *rig.Deployed, rate float64) error {
	var texts []string
	var vectors [][]float32
	for i, n := range u.corpus.tokens {
		if n <= shortTokens {
			texts, vectors = append(texts, u.corpus.texts[i]), append(vectors, s.vectors[i])
		}
	}
	url := d.URL + "/function/" + rig.FunctionName
	few := &served{folder: s.folder, vectors: vectors, trials: s.trials}
	short, err := few.target(openAI, url, texts)
	if err != nil {
		return err
	}
	many := &served{folder: s.folder, vectors: s.vectors[len(u.corpus.texts):], trials: s.trials}
	long, err := many.target(openAI, url, u.corpus.long)
	if err != nil {
		return err
	}
	short.Name, short.Rate = "short", max(1, shortShare*rate)
	long.Name, long.Rate = "long", longRate
	ran, err := load.Run(ctx, load.Options{Targets: []load.Target{short, long}, Seed: 1, Duration: shortTime, Timeout: time.Minute})
	if err != nil {
		return err
	}
	a, b := &ran.Targets[0], &ran.Targets[1]
	fmt.Fprintf(u.o.Log, "    short: median %v, p99 %v; long: median %v, p99 %v\n", a.Latency.P50, a.Latency.P99, b.Latency.P50, b.Latency.P99)
	u.r.Add("short_within_pct."+s.name, 100*a.WithinSLO, "%", fmt.Sprintf(
		"of %d texts of at most %d tokens, %.3g requests/s, within %v beside %.3g requests/s of %d tokens; aim >= 99",
		a.Requests, shortTokens, short.Rate, u.SLO, long.Rate, longest))
	u.r.Add("long_answered_pct."+s.name, 100*float64(b.Good)/float64(max(1, b.Requests)), "%", fmt.Sprintf("of those %d", b.Requests))
	return nil
}

// cold times the first answer from zero instances.
func (u *run) cold(ctx context.Context, s *served, d *rig.Deployed) error {
	t, err := s.target(openAI, d.URL+"/function/"+rig.FunctionName, u.corpus.texts)
	if err != nil {
		return err
	}
	var took []float64
	for range u.Colds {
		if err := errors.Join(d.Scale(ctx, rig.FunctionName, 0), d.Available(ctx, rig.FunctionName, 0)); err != nil {
			return err
		}
		one, err := rig.One(ctx, t)
		if err != nil {
			return err
		}
		took = append(took, rig.Milliseconds(one))
	}
	u.r.Add("cold_start_ms."+s.name, rig.Median(took), "ms", fmt.Sprintf("median of %d, from zero instances to the answer, aim <= 300", u.Colds))
	return nil
}
