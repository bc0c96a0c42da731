package sets

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/membership"
)

const (
	// stopGrace is how long a set that is given up may take to answer what it has.
	stopGrace = 10 * time.Second
	// killTimeout is how long the exit of a stopped member may take to be seen.
	killTimeout = 10 * time.Second
	// undoTimeout bounds how long members are given their former share after a failed change.
	undoTimeout = 10 * time.Second
)

// Start creates an instance. It starts all members of a set at the same time and returns as soon
// as all exist. If one of them cannot be started, the others are stopped, and the error names the
// member.
func (b *Backend) Start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	if !isSet(&spec) {
		return b.under.Start(ctx, spec)
	}
	in, err := b.start(ctx, spec)
	if err != nil {
		return cluster.Instance{}, fmt.Errorf("start %s: %w", spec.ID, err)
	}
	return in, nil
}

func (b *Backend) start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	s, members, err := b.reserve(spec)
	if err != nil {
		return cluster.Instance{}, err
	}
	defer b.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	failed := make([]error, len(members))
	var starts sync.WaitGroup
	for i, member := range members {
		starts.Go(func() {
			if failed[i] = b.startMember(ctx, s, member); failed[i] != nil {
				failed[i] = fmt.Errorf("member %d of %d: %w", i, len(members), failed[i])
				cancel() // The others need not wait for their turn.
			}
		})
	}
	starts.Wait()
	if err := first(failed); err != nil {
		return cluster.Instance{}, errors.Join(err, b.abandon(ctx, s))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Whole()
	in, _ := s.Instance()
	in.State = cluster.Starting // What has become of it since follows as an event.
	s.shown, s.known = in, true
	b.look(s, time.Now())
	return in, nil
}

// first returns the first error that did not follow from another one.
func first(failed []error) (err error) {
	for _, f := range failed {
		if f != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = f
		}
	}
	return err
}

// reserve makes the set, and counts the start in work.
func (b *Backend) reserve(spec cluster.InstanceSpec) (*set, []cluster.InstanceSpec, error) {
	if _, err := planHash(&spec); err != nil {
		return nil, nil, err
	}
	of, members, err := membership.New(spec, func(number int) cluster.InstanceID { return memberID(spec.ID, number) }, time.Now())
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, ErrClosed
	}
	if b.sets[spec.ID] != nil {
		return nil, nil, errors.New("an instance with this ID exists already")
	}
	b.work.Add(1)
	return b.put(spec.ID, of), members, nil
}

// startMember starts one member and tells the set.
func (b *Backend) startMember(ctx context.Context, s *set, spec cluster.InstanceSpec) error {
	in, err := b.under.Start(ctx, spec)
	b.after(s, func(now time.Time) { s.Began(spec.Member, spec.ID, in, err, now) })
	return err
}

// abandon stops what exists of a set whose start has failed. Drivers were told nothing of it.
func (b *Backend) abandon(ctx context.Context, s *set) error {
	now, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	b.leave(s)
	err := b.end(now, s)
	b.after(s, func(time.Time) { s.Abandon() }) // That forgets the set, unless a member is left.
	return err
}

// Stop stops an instance. Of a set it stops the master first, which answers what it has, and then
// the workers, all within ctx.
func (b *Backend) Stop(ctx context.Context, id cluster.InstanceID) error {
	s, err := b.find(id)
	if err != nil {
		return err
	}
	if s == nil {
		return b.under.Stop(ctx, id)
	}
	b.leave(s)
	if err := b.end(ctx, s); err != nil {
		return fmt.Errorf("stop %s: %w", id, err)
	}
	return nil
}

// leave marks a set as being stopped, and breaks off what is being done for it.
func (b *Backend) leave(s *set) {
	b.after(s, func(time.Time) { s.Leave() })
	s.cancel()
}

// end stops a set's members, and waits until none is left. If it cannot stop one, it still tries
// the others.
func (b *Backend) end(ctx context.Context, s *set) error {
	var failed error
	tried := map[cluster.InstanceID]bool{}
	for {
		b.mu.Lock()
		ids := s.Remaining(func(id cluster.InstanceID) bool { return tried[id] })
		gone, changed := s.Empty(), s.changed
		b.mu.Unlock()
		switch {
		case len(ids) > 0:
			failed = errors.Join(failed, b.stopMembers(ctx, s, ids))
			for _, id := range ids {
				tried[id] = true
			}
			continue
		case failed != nil:
			return failed
		case gone:
			return nil
		}
		late := time.NewTimer(killTimeout)
		select {
		case <-changed:
		case <-b.ctx.Done():
			late.Stop()
			return ErrClosed
		case <-late.C:
			if ctx.Err() != nil {
				return fmt.Errorf("not all of it is gone %v after it was stopped: %v", killTimeout, s)
			}
		}
		late.Stop()
	}
}

// stopMembers stops members at the same time.
func (b *Backend) stopMembers(ctx context.Context, s *set, ids []cluster.InstanceID) error {
	failed := make([]error, len(ids))
	var stops sync.WaitGroup
	for i, id := range ids {
		stops.Go(func() {
			if failed[i] = b.under.Stop(ctx, id); failed[i] == nil {
				b.after(s, func(now time.Time) { s.Left(id, now) })
			}
		})
	}
	stops.Wait()
	return errors.Join(failed...)
}

// do carries out one action and tells the set its result.
func (b *Backend) do(s *set, a membership.Action) {
	log := b.log.With().Str("set", string(s.id)).Logger()
	switch a.Do {
	case membership.Start:
		log.Info().Int("member", a.Spec.Member).Str("instance", string(a.Spec.ID)).Msg("starting a worker again")
		if err := b.startMember(s.ctx, s, a.Spec); err != nil && s.ctx.Err() == nil {
			log.Warn().Err(err).Int("member", a.Spec.Member).Msg("could not start a worker")
		}
	case membership.Connect:
		err := b.options.Connect(s.ctx, a.Members[0], a.Members[1:])
		if err != nil && s.ctx.Err() == nil {
			log.Warn().Err(err).Msg("could not tell a master its workers; trying again")
		}
		b.after(s, func(now time.Time) { s.Connected(a.Members, err, now) })
	case membership.Stop:
		log.Warn().Str("why", a.Why).Msg("stopping a set")
		s.cancel()
		ctx, cancel := context.WithTimeout(b.ctx, stopGrace)
		defer cancel()
		err := b.end(ctx, s)
		if err != nil && b.ctx.Err() == nil {
			log.Error().Err(err).Msg("could not stop a set; trying again")
		}
		b.after(s, func(now time.Time) { s.Stopped(err, now) })
	case membership.Dismiss:
		log.Info().Str("instance", string(a.ID)).Msg("stopping a member that exists twice")
		ctx, cancel := context.WithTimeout(b.ctx, stopGrace)
		defer cancel()
		err := b.under.Stop(ctx, a.ID)
		b.after(s, func(now time.Time) { s.Dismissed(a.ID, err, now) })
	case membership.Share:
		b.equalise(s, a.ID)
	}
}

// equalise gives a replaced worker the share of the other members.
func (b *Backend) equalise(s *set, id cluster.InstanceID) {
	var config cluster.Config
	var parked bool
	err := b.alone(s.ctx, s, func() error {
		b.mu.Lock()
		in, _ := s.Instance()
		config, parked = in.Config.Share(), in.Parked
		b.mu.Unlock()
		return b.give(s.ctx, id, cluster.Config{}, config, parked)
	})
	if err != nil && s.ctx.Err() == nil {
		b.log.Warn().Str("set", string(s.id)).Str("instance", string(id)).Err(err).Msg("could not give a new worker the share of the others; trying again")
	}
	b.after(s, func(now time.Time) { s.Shared(id, config, parked, err, now) })
}

// give changes the share of one member. has is the config that it has, zero if that is not known.
func (b *Backend) give(ctx context.Context, id cluster.InstanceID, has, config cluster.Config, parked bool) error {
	var err error
	if !parked || has != config { // Parking keeps the config.
		err = b.under.Resize(ctx, id, config)
	}
	if parked && err == nil {
		err = b.under.Park(ctx, id)
	}
	return err
}

// alone runs f while nobody else changes the shares of a set.
func (b *Backend) alone(ctx context.Context, s *set, f func() error) error {
	select {
	case s.change <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.change }()
	return f()
}

// Resize gives each member of a set its share of another CPU quota. If one member cannot have it,
// the others get their former share back.
func (b *Backend) Resize(ctx context.Context, id cluster.InstanceID, config cluster.Config) error {
	s, err := b.find(id)
	if err != nil {
		return err
	}
	if s == nil {
		return b.under.Resize(ctx, id, config)
	}
	if err := b.alone(ctx, s, func() error { return b.change(ctx, s, config, false) }); err != nil {
		return fmt.Errorf("resize %s: %w", id, err)
	}
	return nil
}

// Park parks an instance, and all members of a set or none.
func (b *Backend) Park(ctx context.Context, id cluster.InstanceID) error {
	s, err := b.find(id)
	if err != nil {
		return err
	}
	if s == nil {
		return b.under.Park(ctx, id)
	}
	err = b.alone(ctx, s, func() error {
		b.mu.Lock()
		in, _ := s.Instance()
		b.mu.Unlock()
		return b.change(ctx, s, in.Config, true)
	})
	if err != nil {
		return fmt.Errorf("park %s: %w", id, err)
	}
	return nil
}

// change changes the share of all members at the same time. alone holds it apart from others.
func (b *Backend) change(ctx context.Context, s *set, config cluster.Config, parked bool) error {
	b.mu.Lock()
	before, _ := s.Instance()
	members, err := s.Change()
	b.mu.Unlock()
	if err != nil {
		return err
	}
	failed := make([]error, len(members))
	var changes sync.WaitGroup
	for i, in := range members {
		changes.Go(func() {
			if failed[i] = b.give(ctx, in.ID, in.Config, config.Share(), parked); failed[i] != nil {
				failed[i] = fmt.Errorf("member %d of %d: %w", in.Member, config.Members(), failed[i])
			}
		})
	}
	changes.Wait()
	var unequal []cluster.InstanceID
	if err = first(failed); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		for i, in := range members {
			if failed[i] == nil {
				undone := b.give(undo, in.ID, config.Share(), before.Config.Share(), before.Parked)
				if undone != nil {
					unequal = append(unequal, in.ID)
				}
				err = errors.Join(err, undone)
			}
		}
	}
	b.after(s, func(time.Time) {
		if err == nil {
			s.Changed(members, config, parked)
		} else {
			s.Unchanged(unequal)
		}
		s.shown, _ = s.Instance() // The caller knows the new share.
	})
	return err
}
