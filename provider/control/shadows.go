package control

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Shadows are what a controller needs of instances that help others. A paper's room has them: see
// [RegisterShadows].
type Shadows interface {
	// Check returns an error that says why a function's instances of a model can have none, without reading
	// it.
	Check(f *provider.Function, file string) error
	// Divide finds the ways to help the instances of a function's model, one for each share. It may take some
	// seconds. planned, which it calls at the end, is what the engine plans with. If there will never be a
	// way, why says so. The error is why the model could not be looked at, for now if why is "":
	// [latency.ErrFollowing] until the leader has, [latency.ErrStored] for a reason that the leader has stored.
	Divide(ctx context.Context, f *provider.Function, file string, planned func() (scaling.Function, capacity.Options)) (ways []Division, why string, err error)
	// Unwanted says that no function has shadows, so nothing has to be kept for the next one. It must
	// not block.
	Unwanted()
	// Tell tells a body which part its shadows hold and where they are; none makes it compute
	// alone.
	Tell(ctx context.Context, body cluster.Instance, part string, shadows []cluster.Instance) error
	// Pair records that a shadow is given to another body, for the replicas that follow and the next
	// provider.
	Pair(ctx context.Context, shadow, body cluster.InstanceID) error
	// Look asks a body about the shadows that it was told of.
	Look(ctx context.Context, body cluster.Instance, shadows []cluster.Instance) (ShadowReport, error)
}

// Division is a way to help an artefact's instances of one share.
type Division interface {
	// Of is the share in millicores, and what a shadow holds.
	Of() (cpu int, part string)
	// Pairing is the way as the engine sees it. alone are the artefact's candidates.
	Pairing(artefact string, alone []capacity.Candidate) scaling.Pairing
	// Table lists the times of a pair's batches of 1, 2, … requests, by those of the body alone. Concurrency is
	// the number of batches that it executes at the same time.
	Table(alone []time.Duration) []time.Duration
	Concurrency() int
	// Executed takes in that a full batch took ratio times as long as Table says, and Forget that time has
	// passed.
	Executed(now time.Time, ratio float64)
	Forget(now time.Time)
	// Shown is what such pairs have shown so far, and Inherit takes over what those of an earlier division have.
	Shown() scaling.Shown
	Inherit(shown scaling.Shown)
	// Weights is the size of the weights that a shadow maps in bytes.
	Weights() int64
	// Describe says what a shadow holds, beside a whole instance that needs so many bytes, and what makes one
	// cheap.
	Describe(whole int64) string
}

// ShadowReport is what a body says of its shadows.
type ShadowReport struct {
	// Useless are those that do not help it now: it has no connection to them, or they are far too slow.
	Useless []cluster.InstanceID
	// Counted is since the body's start. Weights is the size of the weights that it maps in bytes.
	Counted metrics.ShadowCounts
	Weights int64
}

// ShadowPlatform is what a platform's shadows are made of.
type ShadowPlatform struct {
	// Layers returns what "profile layers FILE --json" prints of a model, after some seconds.
	Layers func(ctx context.Context, file string) ([]byte, error)
	// Call makes a request to one of a body's own routes, and returns the answer.
	Call func(ctx context.Context, body cluster.Instance, method, path string, text []byte) ([]byte, error)
	// Relay is where bodies connect to a shadow that listens at an address.
	Relay func(address string) string
	// SharedMemory says that bodies and shadows exchange tensors through memory, otherwise by TCP.
	SharedMemory bool
	// Check returns an error that says why the instances of a function can have no shadows here. It may be nil.
	Check func(f *provider.Function) error
	// Unwanted and Pair are those of [Shadows]. They may be nil.
	Unwanted func()
	Pair     func(ctx context.Context, shadow, body cluster.InstanceID) error
	Log      zerolog.Logger
}

// NewShadows makes a controller's shadows; the controller's finder has the models and their profiles.
type NewShadows func(*latency.Finder) Shadows

// shadowsOn makes the shadows of a platform, nil if no room has registered any.
var shadowsOn func(context.Context, ShadowPlatform, *latency.Finder) Shadows

// RegisterShadows makes deployments with com.openfaas.infer.shadow possible. It panics if they are already. It must
// be called when a package is initialised.
func RegisterShadows(on func(context.Context, ShadowPlatform, *latency.Finder) Shadows) {
	if shadowsOn != nil {
		panic("shadows are registered twice")
	}
	shadowsOn = on
}

// ShadowsOn is [Options.Shadows] of a platform, nil if no room has registered any. The context ends with the provider.
func ShadowsOn(ctx context.Context, p ShadowPlatform) NewShadows {
	if shadowsOn == nil {
		return nil
	}
	return func(f *latency.Finder) Shadows { return shadowsOn(ctx, p, f) }
}
