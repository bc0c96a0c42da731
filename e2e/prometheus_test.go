package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The alerts fire when they should, and the configuration of Prometheus is valid.
func TestAlerts(t *testing.T) {
	dir, err := script("prometheus.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"check", "rules", "--lint-fatal", "../yaml/chart/faas-infer/files/rules.yaml"},
		{"test", "rules", "testdata/alerts.yaml"},
		{"check", "config", "../yaml/options/prometheus/prometheus.yml"},
	} {
		if text, err := exec.Command(filepath.Join(dir, "promtool"), arguments...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", arguments, err, text)
		}
	}
}

// The dashboard has the fields that Grafana needs, and no others.
func TestDashboardFitsGrafana(t *testing.T) {
	binary, err := script("dashboard.sh")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(binary, "../yaml/options/grafana/dashboard.json").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// prometheus is a running Prometheus.
type prometheus struct {
	url    string
	client *http.Client
}

// prometheus starts Prometheus, which scrapes a provider until the test ends.
func (p *place) prometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	dir, err := script("prometheus.sh")
	if err != nil {
		t.Fatal(err)
	}
	at, data := freeAddress(t), t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 500ms}\nscrape_configs:\n- {job_name: faas-infer, static_configs: [{targets: [%q]}]}\n", target)
	file := filepath.Join(data, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(filepath.Join(dir, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(data, "tsdb"), "--web.listen-address="+at)
	var log strings.Builder
	c.Stdout, c.Stderr = &log, &log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.network.start(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // Killed.
		if t.Failed() {
			t.Logf("the log of Prometheus ends with\n%s", log.String()[max(0, log.Len()-4000):])
		}
	})
	s := &prometheus{"http://" + at, p.network.client(t)}
	await(t, patience, "Prometheus", func() bool {
		a, err := try(s.client, http.MethodGet, s.url+"/-/ready", nil)
		return err == nil && a.status == http.StatusOK
	})
	return s
}

// query returns the values of an instant query.
func (s *prometheus) query(t *testing.T, query string) []float64 {
	t.Helper()
	a := do(t, s.client, http.MethodGet, s.url+"/api/v1/query?query="+url.QueryEscape(query), nil)
	var is struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal([]byte(a.body), &is); err != nil || a.status != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", query, a.status, a.body, err)
	}
	var values []float64
	for _, r := range is.Data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, v)
	}
	return values
}

// dashboardQueries returns the queries of the dashboard as Grafana asks them about all functions, by where they are.
// Annotations look back over 3 s.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readAll("../yaml/options/grafana/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	variables := strings.NewReplacer("$function", ".*", "$__rate_interval", "2m")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title+" "+target.RefID] = variables.Replace(target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		all[a.Name] = strings.ReplaceAll(variables.Replace(a.Expr), "1m", "3s")
	}
	return all
}

// A real Prometheus that scrapes a provider has an answer to every query of the dashboard, and the attainment counts
// refused requests.
func TestDashboard(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	d := p.provider(t, suite.binary)
	s := p.prometheus(t, strings.TrimPrefix(d.url, "http://"))
	d.deploy(t, function("identity", "identity:latest", "20s"))
	d.deploy(t, ordinary("environment", "env"))
	p.bundle(t, "mnist:latest", zooModel(t, "mnist"))
	d.deploy(t, function("hurried", "mnist:latest", "100us")) // No config meets that: its requests are refused.
	const count = "sum(faas_infer_slo_requests_total)"
	await(t, patience, "the first scrape of both models", func() bool { return len(s.query(t, "faas_infer_slo_latency_seconds")) == 2 })

	c := client(t)
	const inTime, refused = 30, 10
	for i := range inTime {
		if err := invokeIdentity(c, d.function("identity"), i); err != nil {
			t.Fatal(err)
		}
	}
	for range refused {
		a := do(t, c, http.MethodPost, d.function("hurried"), []byte("{}"))
		if a.status != http.StatusServiceUnavailable {
			t.Fatalf("a request that cannot be in time got %d %s", a.status, a.body)
		}
	}
	if a := do(t, c, http.MethodPost, d.url+"/async-function/environment", nil); a.status != http.StatusAccepted {
		t.Fatal(a)
	}
	await(t, patience, "the scrape of all requests", func() bool {
		values := s.query(t, count)
		return len(values) == 1 && values[0] == inTime+refused
	})
	all := dashboardQueries(t)
	// These have an answer only with callers, after changes of the load, once times are corrected, in a rollout, and at the
	// end.
	fewer := all["Fewer instances"]
	for _, name := range []string{"Refusals by reason B", "Capacity changed", "Measured over predicted time A", "Share of candidates A", "Fewer instances"} {
		if all[name] == "" {
			t.Errorf("the dashboard has no %q", name)
		}
		s.query(t, all[name])
		delete(all, name)
	}
	answered, without := map[string]bool{}, []string{}
	await(t, patience, "an answer to each query", func() bool {
		without = nil
		if err := invokeIdentity(c, d.function("identity"), 0); err != nil { // Some figures need load.
			t.Fatal(err)
		}
		for name, query := range all {
			if !answered[name] && len(s.query(t, query)) == 0 {
				without = append(without, name)
			} else {
				answered[name] = true
			}
		}
		return len(without) == 0
	})
	for name, want := range map[string][]float64{"Lowest attainment A": {0}, "Attainment A": {0, 1}} {
		// Without requests the quotient is no number.
		got := slices.DeleteFunc(s.query(t, all[name]), math.IsNaN)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v: one model answered all in time, one refused all", name, got, want)
		}
	}
	d.remove(t, "identity")
	await(t, patience, "the annotation of fewer instances", func() bool { return len(s.query(t, fewer)) > 0 })
	d.stop(t)
}
