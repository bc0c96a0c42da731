package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Frontdoor configures RunFrontdoor. Envoy and HAProxy are the paths of these programs, "" to leave
// them out. Stock measures the stock gateway, which needs its ports.
type Frontdoor struct {
	Envoy, HAProxy string
	Stock          bool
	// Each is how long each way is measured per round.
	Each time.Duration
}

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

// RunFrontdoor measures what the provider adds to a call of an instance as its clients' only server,
// against the stock gateway in front of the provider, and against proxies in front of the instance. All are measured in
// turn on the same cores.
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
	ways[1].name = "ours"
	address := func(w *way) string {
		host, _, _ := strings.Cut(strings.TrimPrefix(w.url, "http://"), "/")
		return host
	}
	for _, d := range f.doors() {
		if d.program == "" {
			continue
		}
		w, c, err := d.start(ctx, o, s.Dir, address(ways[0]))
		if err != nil {
			return nil, err
		}
		defer c.Stop()
		ways = append(ways, w)
	}
	if f.Stock {
		url, stop, err := o.Gateway(ctx, address(ways[1]), "", s.Dir)
		if err != nil {
			return nil, err
		}
		defer stop()
		ways = append(ways, &way{name: "stock", url: url + "/function/" + rig.FunctionName + "/"})
	}
	target, err := identityTarget(64)
	if err != nil {
		return nil, err
	}
	r := report.New("bench frontdoor", time.Now())
	for _, clients := range []int{1, 16} {
		fmt.Fprintf(o.Log, "%d clients\n", clients)
		if err := measureWays(ctx, ways, target, clients, f.Each); err != nil {
			return nil, err
		}
		addDoors(r, clients, ways)
	}
	return r, nil
}

// addDoors adds the medians over the rounds. ways are direct, ours, and others.
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
			r.Add(prefix+"p50_us", rig.Median(pairs(w.p50, direct.p50, minus)), "µs", w.name+" over direct, "+note)
			r.Add(prefix+"p99_us", rig.Median(pairs(w.p99, direct.p99, minus)), "µs", w.name+" over direct, "+note)
		}
		return
	}
	r.Add("ratio.ours_over_direct", rig.Median(pairs(ours.rps, direct.rps, over)), "ratio", note)
	share := pairs(direct.cpu, ours.cpu, func(d, o float64) float64 { return d / (d + o) })
	r.Add("engine_share", rig.Median(share), "ratio", "the instance's part of the processor time of both, "+note)
	for _, w := range ways[2:] {
		r.Add("ratio.ours_over_"+w.name, rig.Median(pairs(ours.rps, w.rps, over)), "ratio", note)
	}
	if i := slices.IndexFunc(ways, func(w *way) bool { return w.name == "envoy" }); i > 0 {
		r.Add("cpu_per_request", rig.Median(pairs(ours.cpu, ways[i].cpu, over)), "ratio", "ours over Envoy's, "+note)
	}
}
