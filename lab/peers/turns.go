package peers

import (
	"context"
	"fmt"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// again is the part of a rate that was found before with which a search in turn begins.
const again = 0.8

// inTurn finds the rates of the provider and of a peer's best setting once more, ours first: a trial of one, then one of
// the other. Between two searches that follow each other, the speed of a shared machine may change by more than the two
// differ. ours is the rate that the provider's own search found.
func (u *run) inTurn(ctx context.Context, m *rig.Subject, s *subject, p Peer, payload Payload, b found, ours float64) (pair [2]float64, err error) {
	d, err := u.deploy(ctx, m, s)
	if err != nil {
		return pair, fmt.Errorf("in turn: ours: %w", err)
	}
	defer d.Stop()
	var targets [2]load.Target
	var release func()
	if targets[0], release, err = u.toOurs(ctx, s, d, payload); err != nil { // Its model is measured before the peer starts.
		return pair, fmt.Errorf("in turn: ours: %w", err)
	}
	defer release()
	server, err := u.start(ctx, m, s, p, []Setting{b.Setting})
	if err != nil {
		return pair, fmt.Errorf("in turn: %s: %w", p.Name, err)
	}
	defer server.Stop()
	fmt.Fprintf(u.o.Log, "%s, %s: in turn: ours, %s\n", m.Name, payload, p.Name)
	if targets[1], release, err = s.toPeer(ctx, server, b.point); err != nil {
		return pair, fmt.Errorf("in turn: %s: %w", p.Name, err)
	}
	defer release()
	searches := [2]Search{{Start: again * ours, Budget: u.Budget}, {Start: again * b.rate, Budget: u.Budget}}
	for over := 0; over < len(targets); {
		over = 0
		for i := range targets {
			done, err := s.step(ctx, targets[i], &searches[i])
			if err != nil {
				return pair, fmt.Errorf("in turn: %s: %w", targets[i].URL, err)
			}
			if done {
				over++
			}
		}
	}
	return [2]float64{searches[0].Low, searches[1].Low}, nil
}
