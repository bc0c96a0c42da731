// Package asyfunc is AsyFunc (SoCC 2023) beside the core: instances with shadows, which hold a part of the model
// and compute rows of their bodies' batches. The core starts, places and stops an instance that helps another, and
// tells a body where its shadows are; the room decides what a shadow holds and what that gains, and carries it out.
//
// Begin with [Shadows], which a controller asks. Package shadow knows which parts there are (Algorithm 2 and ours),
// shadow/graph lists the blocks of a graph, pairing chooses by the engine's measure, and dividing keeps what is
// known of a model. Package layers is "faas-infer profile layers". roles.go serves a body and a shadow; package pair
// executes batches in both, and relay brings tensors from the one to the other. docs/design/shadow.md explains all of it.
//
// Importing the package registers all of it.
package asyfunc

import (
	"context"

	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/command/plug"
	"github.com/faas-infer/faas-infer/papers/asyfunc/layers"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/latency"
)

func init() {
	control.RegisterShadows(func(ctx context.Context, p control.ShadowPlatform, f *latency.Finder) control.Shadows {
		return newShadows(ctx, p, f)
	})
	instances.Register(bodyRole())
	instances.Register(shadowRole())
	plug.Command("profile", layers.NewCommand)
}
