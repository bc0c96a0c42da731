package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/lab/peers"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Frontdoor configures RunFrontdoor. Envoy and HAProxy are the paths of these programs, "" to leave
// them out. Stock measures the stock gateway, which needs its ports.
type Frontdoor struct {
	Envoy, HAProxy string
	Stock          bool
	// Each is how long each way is measured per round.
	Each time.Duration
}

// elements is the number of elements of the requests of RunFrontdoor.
const elements = 64

// door is a proxy in front of the instance.
type door struct {
	name, program string
	// arguments are those of the program with its configuration in a file. config has the addresses of
	// the door and of the instance as LISTEN_HOST, LISTEN_PORT, HOST and PORT.
	arguments func(file string) []string
	config    string
}

// doors are the proxies that RunFrontdoor measures. They have as many threads as there are cores,
// keep connections and log nothing.
func (o Frontdoor) doors() []door {
	return []door{
		{"envoy", o.Envoy, func(file string) []string {
			return []string{"-c", file, "--concurrency", fmt.Sprint(runtime.NumCPU()),
				"--use-dynamic-base-id", "--log-level", "error"}
		}, envoyConfig},
		{"haproxy", o.HAProxy, func(file string) []string { return []string{"-db", "-q", "-f", file} }, haproxyConfig},
	}
}

const envoyConfig = `static_resources:
  listeners:
  - address: {socket_address: {address: LISTEN_HOST, port_value: LISTEN_PORT}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: door
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: instance}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: instance
    type: STATIC
    load_assignment:
      cluster_name: instance
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: HOST, port_value: PORT}}}}]}]
`

const haproxyConfig = `defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend door
  bind LISTEN_HOST:LISTEN_PORT
  default_backend instance
backend instance
  http-reuse always
  server one HOST:PORT
`

// start starts a door in front of an instance at a TCP address.
func (d door) start(ctx context.Context, o rig.Options, dir, instance string) (*way, *rig.Child, error) {
	address, err := engine.FreeAddress()
	if err != nil {
		return nil, nil, err
	}
	host, port, _ := strings.Cut(address, ":")
	toHost, toPort, _ := strings.Cut(instance, ":")
	file := filepath.Join(dir, d.name+".yaml") // Envoy reads YAML only from such a file.
	text := strings.NewReplacer("LISTEN_HOST", host, "LISTEN_PORT", port, "HOST", toHost, "PORT", toPort).Replace(d.config)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, nil, fmt.Errorf("configuration of %s: %w", d.name, err)
	}
	o.Program = d.program
	c, err := o.Start(d.arguments(file)...)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Answers(ctx, "http://"+address+"/v2/health/ready"); err != nil {
		c.Stop()
		return nil, nil, err
	}
	return &way{name: d.name, url: "http://" + address + "/", pid: c.Process.Pid}, c, nil
}

// address returns the address in a way's URL.
func (w *way) address() string {
	_, rest, _ := strings.Cut(w.url, "://")
	address, _, _ := strings.Cut(rest, "/")
	return address
}

// startFull starts a front like that of ours with everything switched on, and a collector in this process. stop
// returns an error if the collector has got no trace.
func startFull(ctx context.Context, o rig.Options, dir string, ours *way) (*way, func() error, error) {
	var key [16]byte
	_, _ = rand.Read(key[:]) // It never fails.
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, fmt.Appendf(nil, "bench %x\n", key), 0o600); err != nil {
		return nil, nil, fmt.Errorf("API keys: %w", err)
	}
	address, err := engine.FreeAddress()
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	var exports atomic.Int64
	collector := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err == nil && n > 0 && r.URL.Path == "/v1/traces" {
			exports.Add(1)
		}
	})}
	go func() { _ = collector.Serve(l) }()
	// The last of two equal flags counts.
	c, err := o.Start(append(slices.Clone(ours.arguments), "--kind", "full", "--listen", address,
		"--keys", keys, "--collector", "http://"+l.Addr().String())...)
	if err != nil {
		collector.Close()
		return nil, nil, err
	}
	stop := sync.OnceValue(func() error {
		c.Stop() // It exports the rest.
		collector.Close()
		if exports.Load() == 0 {
			return fmt.Errorf("the collector has got no trace: %s", c.Said())
		}
		return nil
	})
	if err := c.Answers(ctx, "http://"+address+"/healthz"); err != nil {
		_ = stop()
		return nil, nil, err
	}
	change := func(t *load.Target) {
		t.Header = t.Header.Clone()
		t.Header.Set("X-API-Key", fmt.Sprintf("%x", key))
		t.TLS = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} // The certificate is the front's own.
	}
	return &way{name: "full", url: "https://" + address + "/function/" + rig.FunctionName + "/", pid: c.Process.Pid, change: change,
		about: "; a process like that of ours with the provider's own parts switched on: TLS 1.3 over kept connections, X-API-Key, a rate limit, 1 % of the requests traced"}, stop, nil
}

// messages is a codec of gRPC that leaves messages as they are.
type messages struct{}

// Marshal implements encoding.Codec.
func (messages) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

// Unmarshal implements encoding.Codec.
func (messages) Unmarshal(message []byte, v any) error {
	*v.(*[]byte) = message
	return nil
}

// Name implements encoding.Codec.
func (messages) Name() string { return "proto" }

// dialGRPC returns the way of grpc-go's client over one connection to ours.
func dialGRPC(ours *way) (*way, func(), error) {
	data := make([]byte, elements*4)
	message, _, err := peers.EncodeMessage(rig.FunctionName, []tensor.Tensor{{Name: "input", Type: tensor.FP32, Shape: []int64{1, elements}, Data: data}})
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient(ours.address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(messages{})))
	if err != nil {
		return nil, nil, fmt.Errorf("client of gRPC: %w", err)
	}
	change := func(t *load.Target) {
		t.Body = func(int) []byte { return message }
		t.Send = func(ctx context.Context, message []byte) (int, []byte, error) {
			var answer []byte
			err := conn.Invoke(ctx, peers.ModelInfer, message, &answer)
			return http.StatusOK, answer, err
		}
	}
	return &way{name: "grpc", url: ours.url, pid: ours.pid, change: change,
			about: "; ModelInfer with raw contents by grpc-go's client over one connection, the others by the bench's own client of HTTP/1.1"},
		func() { conn.Close() }, nil
}

// dialHTTP returns the way of net/http's client to ours. It is as general as grpc-go's, so the two compare the
// protocols; the bench's own client does far less.
func dialHTTP(ours *way) (*way, func()) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	change := func(t *load.Target) {
		header, url := t.Header, t.URL
		t.Send = func(ctx context.Context, body []byte) (int, []byte, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return 0, nil, err
			}
			request.Header = header
			response, err := client.Do(request)
			if err != nil {
				return 0, nil, err
			}
			defer response.Body.Close()
			answer, err := io.ReadAll(response.Body)
			return response.StatusCode, answer, err
		}
	}
	return &way{name: "nethttp", url: ours.url, pid: ours.pid, change: change}, client.CloseIdleConnections
}

// addGRPC adds the medians over the rounds of gRPC to ours, and of ours with net/http's client.
func addGRPC(r *report.Report, clients int, direct, ours, w, netHTTP *way) {
	note := fmt.Sprintf("%d clients, median of %d rounds, on %d cores%s", clients, rounds, runtime.NumCPU(), w.about)
	if clients == 1 {
		r.Add("grpc.added_p50_us", rig.Median(pairs(w.p50, direct.p50, minus)), "µs", "gRPC to ours over direct, "+note)
		r.Add("grpc.added_p99_us", rig.Median(pairs(w.p99, direct.p99, minus)), "µs", "gRPC to ours over direct, "+note)
		r.Add("grpc.over_nethttp_p50_us", rig.Median(pairs(w.p50, netHTTP.p50, minus)), "µs", "gRPC over HTTP/1.1 by net/http's client, "+note)
		return
	}
	r.Add("grpc.rps", rig.Median(w.rps), "requests/s", note)
	r.Add("grpc.cpu_us", rig.Median(w.cpu), "µs", "processor time of the provider for each request, "+note)
	r.Add("ratio.grpc_over_http", rig.Median(pairs(w.rps, ours.rps, over)), "ratio", note)
	r.Add("ratio.grpc_over_nethttp", rig.Median(pairs(w.rps, netHTTP.rps, over)), "ratio", "HTTP/1.1 by net/http's client, "+note)
}

// RunFrontdoor measures what the provider adds to a call of an instance as its clients' only server, plain, with
// everything on and over gRPC, against the stock gateway in front of the provider, and against proxies in front of the
// instance. All are measured in turn on the same cores.
func RunFrontdoor(ctx context.Context, o rig.Options, f Frontdoor) (*report.Report, error) {
	o.Program = process.Self()
	s, err := rig.NewSubject("identity")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ways, stop, err := start(ctx, o, s)
	if err != nil {
		return nil, err
	}
	defer stop()
	ways = ways[:2] // Without faas-provider's proxy.
	direct, ours := ways[0], ways[1]
	ours.name = "ours"
	full, stopFull, err := startFull(ctx, o, s.Dir, ours)
	if err != nil {
		return nil, err
	}
	defer stopFull() // Its error counts at the end of a run.
	overGRPC, hangUp, err := dialGRPC(ours)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	netHTTP, closeIdle := dialHTTP(ours)
	defer closeIdle()
	ways = append(ways, full)
	for _, d := range f.doors() {
		if d.program == "" {
			continue
		}
		w, c, err := d.start(ctx, o, s.Dir, direct.address())
		if err != nil {
			return nil, err
		}
		defer c.Stop()
		ways = append(ways, w)
	}
	if f.Stock {
		url, stop, err := o.Gateway(ctx, ours.address(), "", s.Dir)
		if err != nil {
			return nil, err
		}
		defer stop()
		ways = append(ways, &way{name: "stock", url: url + "/function/" + rig.FunctionName + "/"})
	}
	target, err := identityTarget(elements)
	if err != nil {
		return nil, err
	}
	r := report.New("bench frontdoor", time.Now())
	for _, clients := range []int{1, 16} {
		fmt.Fprintf(o.Log, "%d clients\n", clients)
		if err := measureWays(ctx, append(ways, overGRPC, netHTTP), target, clients, f.Each); err != nil {
			return nil, err
		}
		addDoors(r, clients, ways)
		addGRPC(r, clients, direct, ours, overGRPC, netHTTP)
	}
	return r, stopFull()
}

// addDoors adds the medians over the rounds. ways are direct, ours, full, and others.
func addDoors(r *report.Report, clients int, ways []*way) {
	note := fmt.Sprintf("%d clients, median of %d rounds, on %d cores", clients, rounds, runtime.NumCPU())
	direct, ours := ways[0], ways[1]
	for _, w := range ways {
		r.Add(fmt.Sprintf("%s.rps_%d", w.name, clients), rig.Median(w.rps), "requests/s", note)
		if w.pid != 0 {
			r.Add(fmt.Sprintf("%s.cpu_us_%d", w.name, clients), rig.Median(w.cpu), "µs",
				"processor time of its process for each request, "+note)
		}
	}
	if clients == 1 {
		for _, w := range ways[1:] {
			prefix := "added."
			if w != ours {
				prefix = w.name + "." + prefix
			}
			about := w.name + " over direct, " + note + w.about
			r.Add(prefix+"p50_us", rig.Median(pairs(w.p50, direct.p50, minus)), "µs", about)
			r.Add(prefix+"p99_us", rig.Median(pairs(w.p99, direct.p99, minus)), "µs", about)
		}
		return
	}
	r.Add("ratio.ours_over_direct", rig.Median(pairs(ours.rps, direct.rps, over)), "ratio", note)
	full := ways[2]
	r.Add("ratio.full_over_direct", rig.Median(pairs(full.rps, direct.rps, over)), "ratio", note+full.about)
	share := pairs(direct.cpu, ours.cpu, func(d, o float64) float64 { return d / (d + o) })
	r.Add("engine_share", rig.Median(share), "ratio", "the instance's part of the processor time of both, "+note)
	for _, w := range ways[3:] {
		r.Add("ratio.ours_over_"+w.name, rig.Median(pairs(ours.rps, w.rps, over)), "ratio", note)
	}
	if i := slices.IndexFunc(ways, func(w *way) bool { return w.name == "envoy" }); i > 0 {
		r.Add("cpu_per_request", rig.Median(pairs(ours.cpu, ways[i].cpu, over)), "ratio", "ours over Envoy's, "+note)
	}
}
