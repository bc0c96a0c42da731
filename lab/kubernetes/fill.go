package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// settle is the pause between two measurements.
const settle = time.Second

// fill lets the provider make the pods in rounds. In each round, a bare client makes and
// removes as many pods. The two take turns to begin.
func (b *bench) fill(ctx context.Context) error {
	like, err := b.bare.any(ctx, testprovider.Namespace)
	if err != nil {
		return err
	}
	var ours, bares, ratios []float64
	share := func(round int) int { return b.Pods * round / b.Rounds }
	for round := range b.Rounds {
		var rate [2]float64
		order := []int{0, 1}
		if round%2 == 1 {
			order = []int{1, 0}
		}
		for _, who := range order {
			if who == 0 {
				rate[0], err = b.grow(ctx, share(round), share(round+1))
			} else {
				rate[1], err = b.makeBare(ctx, share(round+1)-share(round), like)
			}
			if err != nil {
				return err
			}
		}
		b.say("round %d of %d: the provider made %.0f pods/s, a bare client %.0f", round+1, b.Rounds, rate[0], rate[1])
		ours, bares, ratios = append(ours, rate[0]), append(bares, rate[1]), append(ratios, rate[0]/rate[1])
	}
	note := fmt.Sprintf("median of %d rounds of %d pods; %s", b.Rounds, share(1), b.size())
	b.report.Add("pods_per_s.ours", rig.Median(ours), "pods/s", "from the first order to the last pod's creation, "+note)
	b.report.Add("pods_per_s.bare", rig.Median(bares), "pods/s", fmt.Sprintf("a client that makes the same pods, %d at a time, and does nothing else, %s", parallel, note))
	b.report.Add("pods_ratio", rig.Median(ratios), "×", "ours to bare, median of the rounds' own")
	return nil
}

// grow scales the filled functions from a number of instances that they have together to another, and
// returns the pods made per second.
func (b *bench) grow(ctx context.Context, from, to int) (float64, error) {
	b.rig.Backend.Begin()
	filled := b.Functions - 1
	each := func(i, pods int) int { // The first ones have one more.
		if i <= pods%filled {
			return pods/filled + 1
		}
		return pods / filled
	}
	var unready []int
	for i := 1; i <= filled; i++ {
		if each(i, from) == each(i, to) {
			continue
		}
		unready = append(unready, i)
		for _, r := range b.all {
			if err := r.Scale(b.name(i), each(i, to)); err != nil {
				return 0, err
			}
		}
	}
	looked := time.Now()
	err := b.until(ctx, fmt.Sprintf("all functions have their part of %d instances", to), func() int {
		if time.Since(looked) > settle/4 {
			unready = slices.DeleteFunc(unready, func(i int) bool { return b.rig.Ready(b.name(i)) >= each(i, to) })
			looked = time.Now()
		}
		return len(unready)
	})
	if err != nil {
		return 0, err
	}
	s := b.rig.Backend.Span()
	if s.Failed > 0 {
		return 0, fmt.Errorf("%d of %d pods could not be created, the first because of: %w", s.Failed, s.Failed+s.Made, s.Err)
	}
	if s.Made > to-from {
		return 0, fmt.Errorf("%d pods were created for %d instances", s.Made, to-from)
	}
	b.decisions = append(b.decisions, b.rig.Backend.Passes()...)
	return float64(s.Made) / s.Ended.Sub(s.Began).Seconds(), rig.Pause(ctx, settle)
}

// makeBare lets the bare client make and remove n pods, and returns the pods made per
// second.
func (b *bench) makeBare(ctx context.Context, n int, like *corev1.Pod) (float64, error) {
	took, err := b.bare.create(ctx, n, like)
	if err != nil {
		return 0, fmt.Errorf("a bare client's pods: %w", err)
	}
	if err := b.pods(ctx, "the bare client's pods run", func(running, _ int) int { return n - running }); err != nil {
		return 0, err
	}
	if err := b.bare.remove(ctx); err != nil {
		return 0, err
	}
	if err := b.pods(ctx, "the bare client's pods are gone", func(_, all int) int { return all }); err != nil {
		return 0, err
	}
	return float64(n) / took.Seconds(), rig.Pause(ctx, settle)
}

// pods waits until left, of the numbers of the bare client's running and all pods, is 0.
func (b *bench) pods(ctx context.Context, what string, left func(running, all int) int) error {
	var failure error
	looked, last := time.Time{}, 1
	err := b.until(ctx, what, func() int {
		if time.Since(looked) < settle/2 {
			return last
		}
		running, all, err := b.bare.running(ctx, bareNamespace)
		if looked, failure = time.Now(), err; err != nil {
			return 0
		}
		last = left(running, all)
		return last
	})
	if failure != nil {
		return failure
	}
	return err
}
