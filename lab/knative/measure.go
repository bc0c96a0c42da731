package knative

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/rig"
)

// coldStarts measures the time from a request that finds no pod to its answer, of both systems in turn.
func (b *bench) coldStarts(ctx context.Context, ours, theirs *system) error {
	if b.Cold == 0 {
		return nil
	}
	took := map[*system][]float64{}
	for i := range b.Cold {
		order := []*system{ours, theirs}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			d, err := cold(ctx, s, ours, theirs)
			if err != nil {
				return err
			}
			took[s] = append(took[s], rig.Milliseconds(d))
			b.say("cold start %d of %d: %s answers after %v", i+1, b.Cold, s.name, d.Round(time.Millisecond))
		}
	}
	note := fmt.Sprintf("median of %d starts, each from no pod to the answer, in turn", b.Cold)
	b.report.Add("cold.ours_ms", rig.Median(took[ours]), "ms", note)
	b.report.Add("cold.knative_ms", rig.Median(took[theirs]), "ms", note+"; "+layerNote)
	b.report.Add("cold.ours_max_ms", slices.Max(took[ours]), "ms", "the slowest of these")
	b.report.Add("cold.knative_max_ms", slices.Max(took[theirs]), "ms", "the slowest of these")
	ratio := rig.Median(took[ours]) / rig.Median(took[theirs])
	b.report.Add("ratio.cold_over_knative", ratio, "×", "ours over Knative's; to reach: at most 0.5")
	return nil
}

// layerNote says what is not Knative's own.
const layerNote = "Knative's networking layer is the lab's proxy, which applies changes at once"

// cold waits until neither system has a pod, and times a request to s.
func cold(ctx context.Context, s *system, all ...*system) (time.Duration, error) {
	for _, other := range all {
		err := await(ctx, "the last pod of "+other.name+" to go", func() error { return other.none(ctx) })
		if err != nil {
			return 0, err
		}
	}
	c := newClients(s)
	defer c.close()
	began := time.Now()
	if err := c.ask(ctx); err != nil {
		return 0, fmt.Errorf("a request to %s without a pod: %w", s.name, err)
	}
	return time.Since(began), nil
}

// rollouts counts the requests that are lost while one image replaces the other, of both systems in
// turn.
func (b *bench) rollouts(ctx context.Context, ours, theirs *system) error {
	if b.Rollouts == 0 {
		return nil
	}
	total := map[*system]*tally{ours: {lost: map[string]int{}}, theirs: {lost: map[string]int{}}}
	took := map[*system][]float64{}
	for done := 0; done < b.Rollouts; done += b.Block {
		for _, s := range []*system{ours, theirs} {
			seconds, err := b.rolls(ctx, s, done, min(b.Block, b.Rollouts-done), total[s])
			if err != nil {
				return err
			}
			took[s] = append(took[s], seconds...)
		}
	}
	for _, of := range []struct {
		who string
		s   *system
	}{{"ours", ours}, {"knative", theirs}} {
		t := total[of.s]
		note := fmt.Sprintf("of %d requests in %d rollouts at %v requests/s: %v", t.sent, b.Rollouts, b.Rate, t)
		if of.s == theirs {
			note += "; " + layerNote
		}
		b.report.Add("rollout."+of.who+".lost", float64(t.losses()), "requests", note)
		slow := fmt.Sprintf("answered after more than %v", late)
		until := "median time until the old image's pods have been told to go"
		b.report.Add("rollout."+of.who+".late", float64(t.late), "requests", slow)
		b.report.Add("rollout."+of.who+"_s", rig.Median(took[of.s]), "s", until)
	}
	return nil
}

// rolls makes n rollouts of a system under load, one after the other. It adds what becomes of the
// requests to total, and returns how many seconds each rollout takes.
func (b *bench) rolls(ctx context.Context, s *system, done, n int, total *tally) (took []float64, err error) {
	c := newClients(s)
	defer c.close()
	if err := await(ctx, "an answer of "+s.name, func() error { return c.ask(ctx) }); err != nil {
		return nil, err
	}
	err = c.load(ctx, b.Rate, func() error {
		for i := range n {
			image, began := b.images[(done+i+1)%len(b.images)], time.Now()
			if err := s.deploy(ctx, image); err != nil {
				return fmt.Errorf("deploy %s with %s: %w", image, s.name, err)
			}
			if err := await(ctx, "the rollout with "+s.name, func() error { return s.only(ctx, image) }); err != nil {
				return err
			}
			took = append(took, time.Since(began).Seconds())
			// Both systems get the same arrivals, however long their rollouts take.
			if err := rig.Pause(ctx, b.Each-time.Since(began)); err != nil {
				return err
			}
			t := c.take()
			total.add(t)
			b.say("rollout %d of %d with %s: %.1f s, %d requests, %d late, %v",
				done+i+1, b.Rollouts, s.name, took[i], t.sent, t.late, t)
		}
		return nil
	})
	total.add(c.take())
	if err != nil {
		return took, err
	}
	// The other's rollouts need the room.
	return took, await(ctx, "the pods of "+s.name+" to go", func() error { return s.none(ctx) })
}

// add adds the counts of another tally.
func (t *tally) add(more tally) {
	t.sent, t.late = t.sent+more.sent, t.late+more.late
	for why, n := range more.lost {
		t.lost[why] += n
	}
}
