package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/openfaas/faas-provider/auth"
	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/shutdown"
	"github.com/faas-infer/faas-infer/provider/web"
)

// start opens everything on a platform, takes over the instances that an earlier provider
// left running, and serves.
func (f *ProviderFlags) start(ctx context.Context, platform Platform) (_ *runningProvider, err error) {
	if err := f.complete(); err != nil {
		return nil, usage(err)
	}
	if err := os.MkdirAll(f.bundles, 0o755); err != nil {
		return nil, fmt.Errorf("--bundles: %w; give a directory that this user can write, with --state for all", err)
	}
	TuneCollector(collectorLimit(f.maxHeld))
	s := &runningProvider{flags: f}
	s.steps.Insists, s.release = shutdown.Insistence()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeParts())
		}
	}()
	decided := decisions.NewLog()
	if s.log, err = f.logger(decided); err != nil {
		return nil, err
	}
	credentials, err := f.credentials()
	if err != nil {
		return nil, err
	}
	if credentials == nil {
		s.log.Warn().Msg("--secret-mount-path is not set, so everyone who reaches the provider can deploy, including functions that share this machine's network: give it a directory with basic-auth-user and basic-auth-password")
	}
	if s.identity, err = f.identity(s.log); err != nil {
		return nil, err
	}
	s.acme = f.acme.certificates(f.state, s.log)
	if err := s.openDoors(); err != nil {
		return nil, err
	}
	s.registry = prometheus.NewRegistry()
	s.bounds = f.connections()
	s.registry.MustRegister(s.bounds)
	switch {
	case s.acme != nil:
		s.registry.MustRegister(metrics.NewCertificate(s.acme.firstExpiry))
	case s.identity != nil:
		s.registry.MustRegister(metrics.NewCertificate(s.identity.Expires))
	}
	live := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile("^/gc/heap/live:bytes$")} // What is left after a collection shows a leak.
	s.registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(live)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	base := Base{Flags: f, Credentials: credentials, Metrics: metrics.New(s.registry), Decisions: decided, Bodies: web.NewBodyReader(f.maxBody, f.bodyTimeout, f.maxHeld), InFlight: web.NewGate(), Identity: s.identity, Log: s.log,
		Backlog: func(function string) (int, time.Time) { return s.async.Backlog(function) }}
	if s.tracer, err = f.traces.open(f.given, s.registry, s.log); err != nil {
		return nil, err
	}
	if s.tracer != nil && s.tracer.Traces() {
		base.Tracer = s.tracer
	}
	if s.parts, err = platform.Open(ctx, base); err != nil {
		return nil, err
	}
	s.provider = s.newServer(base)
	s.restoreHistory()
	if !f.behindGateway {
		s.registry.MustRegister(metrics.NewGateway(base.Metrics, s.provider.Services))
	}
	if s.async, err = f.openAsync(ctx, s, base); err != nil {
		return nil, err
	}
	s.provider.UseAsync(s.async)
	if s.restore, err = s.provider.BeginRestore(); err != nil {
		return nil, err
	}
	if err := s.async.Start(); err != nil {
		return nil, err
	}
	s.run()
	return s, nil
}

// newServer makes the provider's routes from the platform's parts.
func (s *runningProvider) newServer(b Base) *provider.Server {
	f, p := s.flags, s.parts
	downloads, end := context.WithCancel(context.Background())
	s.endDownloads = end
	return provider.New(provider.Options{
		Store: p.Store, Controller: p.Controller, Metrics: b.Metrics, Decisions: b.Decisions, Gatherer: s.registry, Credentials: b.Credentials,
		Bodies: b.Bodies, MaxAnswers: f.maxHeld / answersPart, InFlight: b.InFlight, Tracer: b.Tracer, ColdWait: f.coldWait, Version: types.VersionInfo{Release: report.ReleaseOrCommit(), SHA: report.Version()}, Logger: s.log,
		Secrets: p.Secrets, Logs: p.Logs, Nodes: p.Nodes, CORSOrigins: f.corsOrigins, Hosts: f.Hosts(), FunctionUser: p.FunctionUser, BehindGateway: f.behindGateway,
		Build: p.Build, Upload: p.Upload, PublicKey: p.PublicKey, Defaults: p.Defaults, Fetcher: p.Fetcher, Downloads: downloads, Several: p.Several, AccessKeys: f.accessKeys, Rates: p.Rates, Rollouts: p.Rollouts, Revisions: p.Revisions,
	})
}

// TuneCollector makes Go's garbage collector run a fifth as often. The provider keeps only
// a few MiB, so at thousands of requests per second it would otherwise collect tens of
// times a second. Waiting bodies can take more: above limit bytes, the collector runs as
// often as it must. 0 means no limit.
func TuneCollector(limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(500)
	}
	if os.Getenv("GOMEMLIMIT") == "" && limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

func (f *ProviderFlags) credentials() (*auth.BasicAuthCredentials, error) {
	if f.secrets == "" {
		return nil, nil
	}
	return provider.Credentials(f.secrets)
}

// run starts the control loop and the HTTP server, and brings back the stored functions
// while they run.
func (s *runningProvider) run() {
	ctx, cancel := context.WithCancel(context.Background())
	followed := shutdown.Background(func() { provider.Access{Server: s.provider}.Follow(ctx) })
	watched := shutdown.Background(func() { provider.Watch(ctx, s.provider) })
	rolledOut := shutdown.Background(func() { provider.FollowRollouts(ctx, s.provider) })
	kept := shutdown.Background(func() { s.keepHistory(ctx) })
	s.stopRun, s.ran = cancel, shutdown.Background(func() {
		s.parts.Controller.Run(ctx)
		<-followed
		<-watched
		<-rolledOut
		<-kept
		s.saveHistory()
	})
	restoreCtx, endRestore := context.WithCancel(context.Background())
	ended := shutdown.Background(func() { s.restore(restoreCtx) })
	s.endRestore = func() {
		s.endDownloads()
		endRestore()
		<-ended
	}
	if s.parts.Serve != nil {
		s.parts.Serve(ctx, s.provider)
	}
	handler := s.provider.Handler()
	if s.parts.Wrap != nil {
		handler = s.parts.Wrap(handler)
	}
	s.serve(handler)
	if s.acme != nil {
		_ = shutdown.Background(s.acme.obtain)
	}
}

// connections returns the bounds on clients' connections.
func (f *ProviderFlags) connections() *web.Connections {
	most := f.maxConnections
	if most == 0 {
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			limit.Cur = 1024 // The usual one.
		}
		most = defaultMaxConnections(limit.Cur, f.maxHeld)
	}
	return web.NewConnections(web.ConnectionOptions{Max: most, MaxHeads: f.maxHeld / headsPart, AnswerTimeout: f.answerTimeout})
}
