package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// members are the replicas of a bench as one of them sees them. They stay the same.
type members struct {
	all  *[]peer.Member
	self string
}

// Members implements [peer.Membership].
func (m members) Members() []peer.Member { return *m.all }

// Leaving implements [peer.Membership].
func (m members) Leaving() []peer.Member { return nil }

// Self implements [peer.Membership].
func (m members) Self() string { return m.self }

// replicate starts the replicas, each with its own connection to the API server. They reach each
// other by HTTP, and the first one leads. stop ends them like killed ones: their pods go with the
// cluster. It must be called after an error, too.
func (b *bench) replicate(ctx context.Context, instances *testprovider.StandIns) (stop func() error, err error) {
	var stops []func() error
	stop = func() (err error) {
		for _, s := range stops {
			err = errors.Join(err, s())
		}
		return err
	}
	var groups []*peer.Group
	var all []peer.Member
	for i := range b.Replicas {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return stop, fmt.Errorf("listen: %w", err)
		}
		id := fmt.Sprint("replica-", i)
		g := peer.New(peer.Options{
			Membership: members{&all, id}, Leading: func() bool { return i == 0 }, Tick: testprovider.Tick, ColdWait: testprovider.ColdWait, Logger: zerolog.Nop(),
		})
		server := &http.Server{Handler: g.Handler(), ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = server.Serve(l) }()
		stops = append(stops, server.Close)
		groups = append(groups, g)
		all = append(all, peer.Member{ID: id, URL: "http://" + l.Addr().String()})
	}
	profiles := new(testprovider.Profiles)
	for i, g := range groups {
		b.say("starting replica %d of %d", i+1, b.Replicas)
		var r *testprovider.Rig
		o := testprovider.Options{Config: b.cluster.Config(), Instances: instances, Logger: zerolog.Nop(), Control: func(c *control.Options) {
			c.Eligible = func(f *provider.Function) ([]string, string) { return r.Eligible(f) }
			if c.Profiles = profiles; b.Replicas > 1 {
				c.Replica = peer.NewReplica(func() bool { return i == 0 }, g)
			}
		}}
		if o.Config.Wrap(b.writes.wrap); b.Replicas > 1 {
			o.Group = g
		}
		if r, err = testprovider.Open(ctx, o); err != nil {
			return stop, err
		}
		r.Run()
		stops = append(stops, r.Crash)
		b.all = append(b.all, r)
	}
	b.rig = b.all[0]
	return stop, nil
}

// at returns the replica that gets the i-th request.
func (b *bench) at(i int) *testprovider.Rig { return b.all[i%len(b.all)] }
