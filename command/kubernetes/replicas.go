package kubernetes

import (
	"context"
	"net/http"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/provider/control"
)

// replicas are the provider's replicas, this one among them.
type replicas struct{ platform *platform }

func newReplicas(p *platform) *replicas { return &replicas{p} }

// peers are the other replicas, as the controllers see them.
func (r *replicas) peers() control.Peers { return nil }

// controller hands on the requests of functions that other replicas own.
func (r *replicas) controller(c command.Controller) command.Controller { return c }

// handler puts the routes for the other replicas before the provider's.
func (r *replicas) handler(h http.Handler) http.Handler { return h }

// run follows who is there until ctx ends.
func (r *replicas) run(context.Context) {}
