package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/model/bundle/image"
	"github.com/faas-infer/faas-infer/provider/deployments"
	"github.com/faas-infer/faas-infer/provider/web"
)

// renewPause is the time between two looks at the instances' certificate. cert-manager renews one days
// before it expires.
const renewPause = time.Minute

// certificate opens the directory of --instance-tls. It returns what gives its files of now, nil without
// the flag.
func (p *platform) certificate() (func() map[string][]byte, error) {
	dir := p.flags.instances.tls
	if dir == "" {
		return nil, nil
	}
	if p.base.Identity == nil {
		return nil, errors.New("--instance-tls needs --tls: instances answer a provider with a certificate only")
	}
	i, err := mutual.Open(dir, mutual.InstanceName, p.base.Log)
	if err == nil {
		err = p.base.Identity.Fits(i)
	}
	if err != nil {
		return nil, fmt.Errorf("--instance-tls %s: %w", dir, err)
	}
	return i.Files, nil
}

// watchdog returns what finds our watchdog in the images of ordinary functions, nil without
// --instance-tls.
func (p *platform) watchdog() func(context.Context, types.FunctionDeployment) ([]string, error) {
	if p.flags.instances.tls == "" {
		return nil
	}
	return func(ctx context.Context, d types.FunctionDeployment) ([]string, error) {
		found, err := p.images.resolve(ctx, d)
		if err != nil {
			return nil, web.BadRequest(fmt.Errorf("image %q: --instance-tls needs to know whether its server is faas-infer's watchdog: %w", d.Image, err))
		}
		return secured(d.Image, found)
	}
}

// secured returns the arguments with which an image starts our watchdog, nil if another server does. An
// older program does not know --tls, and its pods would end at once: that is an error.
func secured(name string, r *image.Resolved) ([]string, error) {
	if r.Watchdog != nil && !r.TLS {
		return nil, web.BadRequest(fmt.Errorf(`image %q: the label %s is not "true", so its program faas-infer may be too old for --instance-tls; publish the image again on a base image of this version`, name, image.TLSLabel))
	}
	return r.Watchdog, nil
}

// certify makes a namespace have the instances' certificate.
func (p *platform) certify(ctx context.Context, namespace string) error {
	return kubernetes.EnsureCertificate(ctx, p.backend, namespace)
}

// secure returns what makes connections to other replicas ones with TLS, nil without --tls.
func (p *platform) secure() func(context.Context, net.Conn) (net.Conn, error) {
	if p.base.Identity == nil {
		return nil
	}
	return func(ctx context.Context, conn net.Conn) (net.Conn, error) {
		return p.base.Identity.Client(ctx, conn, mutual.ProviderName)
	}
}

// renew brings renewed certificates to the instances until ctx ends.
func (p *platform) renew(ctx context.Context) {
	if p.flags.instances.tls == "" {
		return
	}
	ticks := time.Tick(renewPause)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		if !p.election.Leading() {
			continue
		}
		if err := kubernetes.RenewCertificates(ctx, p.backend, deployments.Certified(p.ordinary)...); err != nil && ctx.Err() == nil {
			p.base.Log.Error().Err(err).Msg("cannot bring the instances' certificate into all namespaces")
		}
	}
}
