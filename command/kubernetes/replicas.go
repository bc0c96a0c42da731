package kubernetes

import (
	"context"
	"net/http"
	"strings"

	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/deployments"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/provider/router"
	"github.com/faas-infer/faas-infer/provider/web"
)

// openGroup makes this replica a member of the provider's Service. p.group stays nil
// without --service.
func (p *platform) openGroup(opening context.Context) error {
	f := p.flags
	if f.service == "" {
		return nil
	}
	found, err := kubernetes.NewMembers(p.ctx, opening, kubernetes.MemberOptions[peer.Member]{
		Client: p.core, Namespace: f.namespace, Service: f.service, Self: f.pod,
		Make: func(id, url string) peer.Member { return peer.Member{ID: id, URL: url} },
	})
	if err != nil {
		return err
	}
	p.group = peer.New(peer.Options{
		Membership: found, Leading: p.election.Leading, Credentials: p.base.Credentials, Tick: tick,
		ColdWait: f.ColdWait(), Bodies: p.base.Bodies, InFlight: p.base.InFlight, Secure: p.secure(), Decisions: p.base.Decisions, Tracer: p.base.Tracer, Logger: p.base.Log,
	})
	return nil
}

// replica returns this replica for the controller of models.
func (p *platform) replica() *peer.Replica {
	if p.group == nil {
		return peer.NewReplica(p.election.Leading, nil)
	}
	return peer.NewReplica(p.election.Leading, p.group)
}

// listeners returns the other replicas for the controller of ordinary functions.
func (p *platform) listeners() deployments.Peers {
	if p.group == nil {
		return nil
	}
	return p.group.Listener()
}

// rollouts returns the other replicas for gradual rollouts.
func (p *platform) rollouts() provider.RolloutPeers {
	return peer.NewRollouts(p.group, p.election.Leading)
}

// shared wraps c so that one replica dispatches each function of a model. Without other
// replicas it returns c.
func (p *platform) shared(replica *peer.Replica, c command.Controller) command.Controller {
	if p.group == nil {
		return c
	}
	p.group.Attach(replica.Local())
	p.group.AttachOrdinary(p.ordinary)
	return router.NewShared(c, p.group)
}

// routes adds the routes between replicas to next, the provider's routes.
func (p *platform) routes(next http.Handler) http.Handler {
	if p.group == nil {
		return next
	}
	replicas := p.group.Handler()
	if p.base.Credentials == nil {
		replicas = web.NewHosts(p.flags.Hosts()).Guard(replicas)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, peer.Prefix) {
			replicas.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
