package kubernetes

import (
	"context"
	"fmt"
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
	parts := b.Rounds * (b.Functions - 1)
	each := (b.Pods + parts - 1) / parts
	for round := range b.Rounds {
		var rate [2]float64
		order := []int{0, 1}
		if round%2 == 1 {
			order = []int{1, 0}
		}
		for _, who := range order {
			if who == 0 {
				rate[0], err = b.grow(ctx, each*(round+1))
			} else {
				rate[1], err = b.makeBare(ctx, each*(b.Functions-1), like)
			}
			if err != nil {
				return err
			}
		}
		b.say("round %d: the provider made %.0f pods/s, a bare client %.0f", round+1, rate[0], rate[1])
		ours, bares, ratios = append(ours, rate[0]), append(bares, rate[1]), append(ratios, rate[0]/rate[1])
	}
	note := fmt.Sprintf("median of %d rounds of %d pods", b.Rounds, each*(b.Functions-1))
	b.report.Add("pods_per_s.ours", rig.Median(ours), "pods/s", "from the first order to the last pod's creation, "+note)
	b.report.Add("pods_per_s.bare", rig.Median(bares), "pods/s", fmt.Sprintf("a client that makes the same pods, %d at a time, and does nothing else, %s", parallel, note))
	b.report.Add("pods_ratio", rig.Median(ratios), "×", "ours to bare, median of the rounds' own")
	return nil
}

// grow scales each filled function to a number of instances, and returns the pods made per
// second.
func (b *bench) grow(ctx context.Context, each int) (float64, error) {
	b.rig.Backend.Begin()
	for i := 1; i < b.Functions; i++ {
		if err := b.rig.Scale(b.name(i), each); err != nil {
			return 0, err
		}
	}
	err := b.until(ctx, fmt.Sprintf("every function has %d ready instances", each), func() bool {
		for i := 1; i < b.Functions; i++ {
			if b.rig.Ready(b.name(i)) < each {
				return false
			}
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	s := b.rig.Backend.Span()
	if s.Failed > 0 {
		return 0, fmt.Errorf("%d of %d pods could not be created", s.Failed, s.Failed+s.Made)
	}
	return float64(s.Made) / s.Ended.Sub(s.Began).Seconds(), rig.Pause(ctx, settle)
}

// makeBare lets the bare client make and remove n pods, and returns the pods made per
// second.
func (b *bench) makeBare(ctx context.Context, n int, like *corev1.Pod) (float64, error) {
	took, err := b.bare.create(ctx, n, like)
	if err != nil {
		return 0, fmt.Errorf("a bare client's pods: %w", err)
	}
	if err := b.pods(ctx, "the bare client's pods run", func(running, _ int) bool { return running == n }); err != nil {
		return 0, err
	}
	if err := b.bare.remove(ctx); err != nil {
		return 0, err
	}
	if err := b.pods(ctx, "the bare client's pods are gone", func(_, all int) bool { return all == 0 }); err != nil {
		return 0, err
	}
	return float64(n) / took.Seconds(), rig.Pause(ctx, settle)
}

// pods waits for a condition on the bare client's pods.
func (b *bench) pods(ctx context.Context, what string, condition func(running, all int) bool) error {
	var failure error
	looked := time.Time{}
	err := b.until(ctx, what, func() bool {
		if time.Since(looked) < settle/2 {
			return false
		}
		running, all, err := b.bare.running(ctx, bareNamespace)
		looked, failure = time.Now(), err
		return err != nil || condition(running, all)
	})
	if failure != nil {
		return failure
	}
	return err
}
