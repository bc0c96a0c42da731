package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podlogs"
	"github.com/faas-infer/faas-infer/cluster/sets"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/build"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/deployments"
	"github.com/faas-infer/faas-infer/provider/objects"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/provider/router"
)

// openTimeout is how long the cluster may take to list its objects at start. tick is how
// often the controllers look at the load.
const (
	openTimeout = 30 * time.Second
	tick        = 100 * time.Millisecond
)

// platform is a Kubernetes cluster.
type platform struct {
	flags *providerFlags
	base  command.Base
	clients
	// ctx ends with Close; watching counts the goroutines that end with it.
	ctx      context.Context
	watching sync.WaitGroup

	objects  *objects.Objects
	history  *objects.HistoryStore
	secrets  *objects.SecretStore
	election *client.Election
	profiles *kubernetes.Profiles
	backend  *kubernetes.Backend
	// sets makes sets of members on the backend, for the models that are cut.
	sets     *sets.Backend
	control  *control.Controller
	ordinary *deployments.Controller
	// images reads the functions' images.
	images *images
	// placeholders asks a node autoscaler for nodes, nil without --placeholder-image.
	placeholders *kubernetes.Placeholders
	// group holds the replicas of the provider, nil if there is only this one.
	group *peer.Group
	// kind is the type of this replica's node, a string.
	kind atomic.Value
	// waitOperators waits for the end of what follows operators' profiles, nil before its start.
	waitOperators func()
}

var _ command.Platform = (*platform)(nil)

// Open implements [command.Platform].
func (p *platform) Open(ctx context.Context, b command.Base) (parts command.Parts, err error) {
	p.base = b
	var cancel context.CancelFunc
	p.ctx, cancel = context.WithCancel(context.Background())
	parts.Close = func() error {
		cancel()
		return p.close()
	}
	client.RouteLogs(b.Log)
	if p.clients, err = connect(p.flags.kubeconfig); err != nil {
		return parts, err
	}
	opening, done := context.WithTimeout(ctx, openTimeout)
	defer done()
	if err := p.openObjects(opening); err != nil {
		return parts, err
	}
	if err := p.checkUserNamespaces(opening); err != nil {
		return parts, err
	}
	controller, err := p.openControllers(opening)
	if err != nil {
		return parts, err
	}
	if err := p.openBuilder(&parts); err != nil {
		return parts, err
	}
	parts.PublicKey = http.HandlerFunc(build.PublicKey)
	parts.Store, parts.Secrets, parts.Controller, parts.Nodes = p.objects, p.secrets, controller, p.backend.Nodes
	parts.Several, parts.Defaults = p.group != nil, p.images.brought
	if p.group != nil {
		parts.Rates = peer.NewRates(p.group)
	}
	parts.Rollouts, parts.Revisions = p.rollouts(), objects.Revisions{Objects: p.objects}
	parts.Logs = podlogs.Source{Client: p.core, Logger: b.Log}
	if f := p.flags; f.modelImage != "" {
		parts.Fetcher = p.images.uris.downloads
	}
	parts.Serve = func(ctx context.Context, s *provider.Server) { p.serve(ctx, s, controller) }
	parts.Wrap = p.routes
	return parts, nil
}

// openBuilder sets the handlers of faas-cli's remote builder and of uploads, which push images to a
// registry.
func (p *platform) openBuilder(parts *command.Parts) error {
	if !p.flags.Builds() {
		parts.Build = http.HandlerFunc(build.Disabled)
		return nil
	}
	publish, err := p.flags.publish.publisher(p.flags.plain)
	if err != nil {
		return err
	}
	builder, err := p.flags.Builder(p.base.Log, publish)
	if err != nil {
		return err
	}
	parts.Build, parts.Upload = builder, builder.Upload
	return nil
}

// openObjects opens the state that is kept in the cluster.
func (p *platform) openObjects(opening context.Context) (err error) {
	f := p.flags
	err = client.Insist(opening, p.base.Log, func(opening context.Context) (err error) {
		p.objects, err = objects.Open(p.ctx, opening, objects.Options{Config: p.config, Client: p.core, NewNamespaces: f.spaces.policy(f.namespace), Logger: p.base.Log})
		return err
	})
	if err != nil {
		return err
	}
	p.election, err = client.NewElection(client.ElectionOptions{
		Config: p.config, Namespace: f.namespace, Name: f.lease, Identity: f.identity(), Lease: f.leaseDuration, Changed: p.turn, Logger: p.base.Log,
	})
	if err != nil {
		return err
	}
	err = client.Insist(opening, p.base.Log, func(context.Context) (err error) {
		p.history, err = objects.OpenHistoryStore(p.ctx, p.core, f.namespace, p.election.Leading)
		return err
	})
	if err != nil {
		return err
	}
	p.secrets, p.profiles = objects.NewSecretStore(p.core), kubernetes.NewProfiles(p.dynamic, p.core, f.namespace)
	return nil
}

// turn wakes the controllers when this replica begins or stops to lead.
func (p *platform) turn(leading bool) {
	p.base.Log.Info().Bool("leading", leading).Msg("the leadership has changed")
	if p.control != nil {
		p.control.Wake()
		p.ordinary.Wake()
	}
}

// accessTime bounds the check of the provider's rights, and maxMissing the number of missing ones
// that are logged.
const (
	accessTime = 5 * time.Minute
	maxMissing = 50
)

// checkAccess logs missing rights. The provider serves meanwhile, and continues without them as
// far as it can.
func (p *platform) checkAccess(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, accessTime)
	defer cancel()
	missing, err := client.CheckAccess(ctx, p.core, client.Needs(), p.flags.namespace, p.objects.Names())
	if err != nil {
		p.base.Log.Warn().Err(err).Msg("cannot check the provider's rights")
	}
	if n := len(missing); n > maxMissing {
		p.base.Log.Error().Int("missing", n).Int("shown", maxMissing).Msg("the provider lacks many rights; the first are shown")
		missing = missing[:maxMissing]
	}
	for _, m := range missing {
		p.base.Log.Error().Str("verb", m.Verb).Str("resource", m.Resource).Str("namespace", m.Namespace).Msg(m.String())
	}
}

// openControllers opens the backend and the controllers that drive it.
func (p *platform) openControllers(opening context.Context) (command.Controller, error) {
	f, b := p.flags, p.base
	certificate, err := p.certificate()
	if err != nil {
		return nil, err
	}
	local, downloads := f.Models(), f.Downloads
	downloads.Hashed = local.Remember
	byURI := &uris{platform: p, downloads: bundles.NewDownloads(downloads, p.secrets, p.objects.Functions), image: f.modelImage}
	byURI.known = func(full string) bool {
		_, there := p.objects.Lookup(full)
		return there
	}
	p.backend, err = kubernetes.New(opening, kubernetes.Options{
		Client: p.core, Metrics: p.metrics, Namespaces: nil, Functions: p.objects.Lookup, Profiles: p.profiles,
		Args: f.instanceArguments, Copies: f.copiesClaim, Local: f.instances.local, Grace: instanceGrace, NodeSelector: f.nodeSelector, Certificate: certificate, Logger: b.Log,
		Content: contentOf, Feed: byURI.feed, Dial: b.Identity.Dial, Leading: p.election.Leading,
	})
	if err != nil {
		return nil, err
	}
	if len(f.copies) > 0 && f.modelImage != "" && certificate == nil { // Agents speak no TLS.
		byURI.agents = newAgents(p.ctx, f.copiesKey, p.watching.Go, byURI.isHere, byURI.source)
	}
	if err := p.openGroup(opening); err != nil {
		return nil, err
	}
	o, err := f.ControlOptions(b)
	if err != nil {
		return nil, err
	}
	models := &imageModels{local: local, root: f.imageDir()}
	p.images = &images{platform: p, models: models, alike: local.Alike, texts: local, tokenizers: bundles.NewTokenizers(b.Log), cutter: p.cutter(models), function: p.objects.Lookup}
	p.images.uris, byURI.models = byURI, models
	if p.images.own, err = f.credentials.keychain(b.Log); err != nil {
		return nil, err
	}
	o.Models, o.Bundles, o.Secrets = models, p.images, p.secrets
	o.Shadows = control.ShadowsOn(p.ctx, f.shadowPlatform(b, local, models, p.backend))
	// The provider's own node has no part in it.
	o.Trials = command.Trials{Dial: b.Identity.Dial}
	o.Devices = local.GPUs(func() gpu.Inventory { return gpu.Inventory{} }, p.backend.GPUs)
	o.Profiles, o.Corrections, o.Histories, o.Yardstick = p.history, p.history, p.history, p.yardstick
	o.MaxSaves = objects.MaxSaves
	p.learnType(opening) // Stored corrections hold for times that were converted in the same way.
	o.Improver, o.Cuttable = p.images, p.images.cuttable
	o.Arriving, o.Unprepared = byURI.progress, byURI.agents.unprepared
	o.Replica, o.Eligible, o.Dial = p.replica(), p.eligible, b.Identity.Dial
	if p.sets, err = sets.New(opening, p.backend, sets.Options{Leads: o.Replica.Leads, Dial: b.Identity.Dial, Logger: b.Log}); err != nil {
		return nil, err
	}
	o.Backend = lasting{p.sets, p.ctx, byURI.foresee}
	if err := p.openPlaceholders(&o); err != nil {
		return nil, err
	}
	if p.control, err = control.New(opening, o); err != nil {
		return nil, err
	}
	p.ordinary, err = deployments.New(opening, deployments.Options{
		Client: p.core, Usage: p.metrics, Functions: p.objects.Lookup, Profiles: p.profiles, User: f.user, Local: f.instances.local,
		Watchdog: p.watchdog(), Certify: p.certify, Dial: b.Identity.Dial,
		PullPolicy: corev1.PullPolicy(f.pullPolicy), Leading: p.election.Leading, Peers: p.listeners(),
		Metrics: b.Metrics, Logger: b.Log, Decisions: b.Decisions, ColdWait: o.ColdWait, QueueLimit: o.QueueLimit, BodyTimeout: f.BodyTimeout(), Tick: tick,
	})
	if err != nil {
		return nil, errors.Join(err, p.control.Close(opening))
	}
	if err := p.followOperators(opening); err != nil {
		return nil, errors.Join(err, p.control.Close(opening))
	}
	return p.shared(o.Replica, router.New(p.control, ordinary{p.ordinary, p.images}, nil, b.Log)), nil
}

// followOperators imports the operators' profiles that the cluster has. Models' times on the nodes' GPUs
// follow from them.
func (p *platform) followOperators(opening context.Context) (err error) {
	p.waitOperators, err = objects.FollowOperators(p.ctx, opening, objects.OperatorsOptions{
		Client: p.core, Namespace: p.flags.namespace, Engines: command.OperatorEngines(), Logger: p.base.Log,
		Take: func(db *database.Database) (database.Merged, error) {
			merged, err := p.flags.ImportOperators(db)
			if err == nil && merged.Added+merged.Replaced > 0 {
				p.control.Learned()
			}
			return merged, err
		},
	})
	return err
}

// cutter makes the cutter of models, which shares its plans with the other replicas.
func (p *platform) cutter(files bundles.Files) bundles.Cutter {
	c := p.flags.Cutter(bundles.Sharing{Plans: p.history, Leads: p.election.Leading}, files, p.base.Log)
	c.BeginTidying(p.objects.Functions)
	return c
}

// eligible lists the nodes on which a function's instances may start.
func (p *platform) eligible(f *provider.Function) (nodes []string, why string) {
	nodes, why = p.backend.Eligible(f.Deployment, p.images.platforms(f.Name)...)
	return p.backend.Admitting(f.Name, f.Revision, nodes, why)
}

// serve starts the election, the watch of functions and the exchange between replicas,
// which run for as long as the provider serves.
func (p *platform) serve(ctx context.Context, s *provider.Server, c command.Controller) {
	p.watching.Go(func() {
		if err := p.election.Run(ctx); err != nil && ctx.Err() == nil {
			p.base.Log.Error().Err(err).Msg("this replica has left the election of a leader")
		}
	})
	p.watching.Go(func() {
		err := p.objects.Watch(ctx, objects.Watching{Target: s, Leading: p.election.Leading, Status: c.Status, Resolved: p.images.resolved, Recount: p.backend.Recount, Defaults: p.images.brought, Decisions: p.base.Decisions,
			Rollout: func(name string) provider.RolloutSummary { return provider.RolloutOf(s, name) },
			RollOut: provider.Rollouts{Server: s}.Begin, TakeBack: provider.Rollouts{Server: s}.TakeBack,
			Problem: func(name string) string {
				d, _ := c.Describe(name)
				return d.Problem
			}})
		if err != nil && ctx.Err() == nil {
			p.base.Log.Error().Err(err).Msg("the watch of functions has ended")
		}
	})
	if p.group != nil {
		peer.NewRates(p.group).Attach(provider.Access{Server: s}.Count)
		peer.NewRollouts(p.group, p.election.Leading).Attach(provider.Rollouts{Server: s}.Follow)
		p.watching.Go(func() { p.group.Run(ctx) })
	}
	p.watching.Go(func() { p.checkAccess(ctx) })
	p.watching.Go(func() { p.publishYardstick(ctx) })
	p.watching.Go(func() { p.collect(ctx) })
	p.watching.Go(func() { p.renew(ctx) })
	p.watching.Go(func() { p.images.uris.tidy(ctx) })
	if p.flags.modelImage != "" {
		p.watching.Go(func() { p.images.uris.prefetch(ctx) })
	}
	if a := p.images.uris.agents; a != nil {
		p.watching.Go(func() { a.follow(ctx, p.core) })
	}
	if p.placeholders != nil {
		p.watching.Go(func() { p.placeholders.Run(ctx) })
	}
}

// close closes what Open has opened, even if Open failed halfway.
func (p *platform) close() error {
	p.watching.Wait()
	var err error
	if p.images != nil {
		err = errors.Join(p.images.cutter.Close(), p.images.uris.downloads.Close())
	}
	switch {
	case p.sets != nil: // It closes the backend.
		err = errors.Join(err, p.sets.Close())
	case p.backend != nil:
		err = errors.Join(err, p.backend.Close())
	}
	if p.waitOperators != nil {
		p.waitOperators()
	}
	if p.history != nil {
		p.history.Close()
	}
	if p.objects != nil {
		p.objects.Close()
	}
	return err
}

// lasting is a backend whose instances outlive the provider. Another replica or the next
// provider takes them over.
type lasting struct {
	cluster.Backend
	// life ends when the provider does.
	life context.Context
	// starts is called for each instance that is started.
	starts func(cluster.InstanceSpec)
}

// Start implements [cluster.Backend].
func (l lasting) Start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	l.starts(spec)
	return l.Backend.Start(ctx, spec)
}

// Stop implements [cluster.Backend]. It does nothing once the provider is ending.
func (l lasting) Stop(ctx context.Context, id cluster.InstanceID) error {
	if l.life.Err() != nil {
		return nil
	}
	if err := l.Backend.Stop(ctx, id); err != nil {
		return fmt.Errorf("stop instance %s: %w", id, err)
	}
	return nil
}
