package disturb

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy is a disturbing proxy in front of an API server. Its methods are safe for
// concurrent use.
type Proxy struct {
	upstream  *url.URL
	transport http.RoundTripper
	forward   *httputil.ReverseProxy
	server    *http.Server
	host      string
	ca        []byte
	token     string
	history   *history
	work      sync.WaitGroup
	// ctx ends when Close begins.
	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex
	plan Plan
	// asked counts the requests for each path, for their random sources.
	asked map[string]uint64
	// watches are the open watches.
	watches map[*opened]struct{}
	// thawed is closed while events flow.
	thawed chan struct{}
	counts Counts
}

// Start starts a proxy on a free port of the loopback interface. It forwards to the API
// server of the configuration, as its user.
func Start(upstream *rest.Config, plan Plan) (*Proxy, error) {
	if err := plan.Check(); err != nil {
		return nil, err
	}
	target, _, err := rest.DefaultServerUrlFor(upstream)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	transport, err := rest.TransportFor(upstream)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	own, ca, err := certificate(time.Now())
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &Proxy{upstream: target, transport: transport, host: "https://" + listener.Addr().String(), ca: ca, token: rand.Text(),
		plan: plan, asked: map[string]uint64{}, watches: map[*opened]struct{}{}, thawed: make(chan struct{})}
	close(p.thawed)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.history = &history{ask: p.version}
	p.forward = &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		}}
	p.server = &http.Server{Handler: p, TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12},
		ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: 10 * time.Second}
	if plan.List.Stale > 0 {
		if err := p.begin(); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	p.work.Go(func() { _ = p.server.ServeTLS(listener, "", "") })
	p.work.Go(func() { p.history.keep(p.ctx, p.remembers) })
	return p, nil
}

// Config returns a client's configuration for the proxy, without a rate limit.
func (p *Proxy) Config() *rest.Config {
	return &rest.Config{Host: p.host, BearerToken: p.token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: p.ca}}
}

// WriteKubeconfig writes the configuration as a file for other programs.
func (p *Proxy) WriteKubeconfig(file string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["disturbed"] = &clientcmdapi.Cluster{Server: p.host, CertificateAuthorityData: p.ca}
	c.AuthInfos["disturbed"] = &clientcmdapi.AuthInfo{Token: p.token}
	c.Contexts["disturbed"] = &clientcmdapi.Context{Cluster: "disturbed", AuthInfo: "disturbed"}
	c.CurrentContext = "disturbed"
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// Close ends all connections and waits until the proxy has stopped.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.server.Close()
	p.work.Wait()
	if idle, ok := p.transport.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
	return err
}

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+p.token {
		http.Error(w, "the proxy's token is missing: use its Config", http.StatusUnauthorized)
		return
	}
	p.work.Add(1)
	defer p.work.Done()
	plan, chances := p.draw(r)
	switch {
	case r.Method == http.MethodGet && isTrue(r.URL.Query().Get("watch")):
		p.watch(w, r)
		return
	case r.Method == http.MethodGet && r.URL.Query().Get("resourceVersion") == "0":
		if chances.Float64() < plan.List.Stale {
			p.age(r, plan.List.Age)
		}
	case isWrite(r.Method):
		if chances.Float64() < plan.Write.Refuse {
			p.count(func(c *Counts) { c.Refused++ })
			http.Error(w, "refused by the plan", http.StatusInternalServerError)
			return
		}
		if chances.Float64() < plan.Write.Lose {
			p.lose(r)
		}
	}
	p.forward.ServeHTTP(w, r)
}

// lose forwards a write and breaks the client's connection instead of answering.
func (p *Proxy) lose(r *http.Request) {
	out := p.outgoing(r)
	if response, err := p.transport.RoundTrip(out); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		p.count(func(c *Counts) { c.Lost++ })
	}
	panic(http.ErrAbortHandler)
}

// outgoing returns the request to the API server for a client's request.
func (p *Proxy) outgoing(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	out.RequestURI, out.Host = "", ""
	out.URL.Scheme, out.URL.Host = p.upstream.Scheme, p.upstream.Host
	out.URL.Path = strings.TrimSuffix(p.upstream.Path, "/") + r.URL.Path
	for _, name := range []string{"Authorization", "Accept-Encoding", "Connection"} {
		out.Header.Del(name)
	}
	return out
}

func isTrue(s string) bool { return s == "true" || s == "1" }

func isWrite(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}
