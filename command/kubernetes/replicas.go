package kubernetes

import (
	"context"
	"net/http"
	"strings"

	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/provider/deployments"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/provider/router"
)

// openGroup makes this replica one of those that the provider's Service has; nil where
// there is no such Service.
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
		Wait: f.ColdWait(), MaxBody: f.MaxBody(), Logger: p.base.Log,
	})
	return nil
}

// replica is this one, as the controller of models sees it.
func (p *platform) replica() *peer.Replica {
	if p.group == nil {
		return peer.NewReplica(p.election.Leading, nil)
	}
	return peer.NewReplica(p.election.Leading, p.group)
}

// listeners are the other replicas, as the controller of ordinary functions sees
// them.
func (p *platform) listeners() deployments.Peers {
	if p.group == nil {
		return nil
	}
	return p.group.Listener()
}

// shared has each function of a model dispatched by one replica.
func (p *platform) shared(replica *peer.Replica, c command.Controller) command.Controller {
	if p.group == nil {
		return c
	}
	p.group.Attach(replica.Local())
	p.group.AttachOrdinary(p.ordinary)
	return router.NewShared(c, p.group)
}

// routes puts what replicas ask each other before the provider's routes.
func (p *platform) routes(provider http.Handler) http.Handler {
	if p.group == nil {
		return provider
	}
	replicas := p.group.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, peer.Prefix) {
			replicas.ServeHTTP(w, r)
			return
		}
		provider.ServeHTTP(w, r)
	})
}
