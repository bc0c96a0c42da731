package command

import (
	"bytes"
	"context"
	"path/filepath"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
)

// maxStatus bounds what a body says of its shadows, in bytes.
const maxStatus = 64 << 10

// ShadowPlatform returns what the shadows of instances are made of on every platform. dial connects to bodies, and
// bodies connect to relay(a) if a shadow listens at a.
func ShadowPlatform(b Base, models *children.Models, dial mutual.Dial, relay func(address string) string) control.ShadowPlatform {
	return control.ShadowPlatform{
		Layers: func(ctx context.Context, file string) ([]byte, error) {
			return models.Run(ctx, children.Background, filepath.Dir(file), "profile", "layers", file, "--json", "--database", models.Database, "--prepared", models.Prepared)
		},
		Call: func(ctx context.Context, body cluster.Instance, method, path string, text []byte) ([]byte, error) {
			return callInstance(ctx, dial, body, method, path, bytes.NewReader(text), maxStatus)
		},
		Relay: relay, Log: b.Log,
	}
}

// localPlatform is [ShadowPlatform] for instances on this machine.
func localPlatform(b Base, models *children.Models, beside *standbys) control.ShadowPlatform {
	p := ShadowPlatform(b, models, (*mutual.Identity)(nil).Dial, relayOf)
	p.SharedMemory = true
	p.Unwanted = func() { beside.shadow.Drop(forShadows) }
	return p
}

// relayOf is where bodies connect to a shadow that listens at a socket.
func relayOf(socket string) string { return socket + ".relay" }
