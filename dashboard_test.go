package main_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/faas-infer/faas-infer/e2e/guide"
)

const (
	dashboardFile = "yaml/options/grafana/dashboard.json"
	alertsFile    = "yaml/chart/faas-infer/files/rules.yaml"
	metricsPage   = "docs/design/metrics.md"
	runbooks      = "https://github.com/faas-infer/faas-infer/blob/main/docs/runbooks/"
)

// dashboard is the part of Grafana's format that the tests look at.
type dashboard struct {
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct {
			RefID, Expr, LegendFormat string
			Datasource                struct{ UID string }
		}
	}
	Annotations struct {
		List []struct {
			Name, Expr, Step, TitleFormat string
			Enable                        bool
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(document(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// alertRule is an alert as Prometheus reads it.
type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func readAlerts(t *testing.T) []alertRule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal([]byte(document(t, alertsFile)), &file); err != nil || len(file.Groups) != 1 {
		t.Fatalf("%d groups, %v", len(file.Groups), err)
	}
	return file.Groups[0].Rules
}

// shownQueries returns the queries of the dashboard, its annotations and the alerts by where they are.
func shownQueries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	d := readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title+", "+target.RefID] = target.Expr
		}
	}
	for _, a := range d.Annotations.List {
		all["annotation "+a.Name] = a.Expr
	}
	for _, r := range readAlerts(t) {
		all["alert "+r.Alert] = r.Expr
	}
	return all
}

var seriesName = regexp.MustCompile(`faas_infer_([a-z_]+)`)

// The dashboard and the alerts ask only for metrics that exist.
func TestQueriesAskForMetricsThatExist(t *testing.T) {
	made := map[string]bool{}
	for _, cells := range tableRows(t, document(t, metricsPage), "name `faas_infer_…`") {
		for _, name := range guide.Spans(cells[0]) {
			made[name] = true
		}
	}
	for where, query := range shownQueries(t) {
		for _, m := range seriesName.FindAllStringSubmatch(query, -1) {
			name := m[1]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if !made[name] {
				t.Errorf("%s: nobody makes faas_infer_%s", where, m[1])
			}
		}
	}
}

// oneForm is a query without what differs between a dashboard and an alert: spaces, the chosen functions, the window.
func oneForm(query string) string {
	query = strings.NewReplacer(`{function=~"$function"}`, "", "[$__rate_interval]", "[10m]").Replace(query)
	return strings.Join(strings.Fields(query), " ")
}

// Every query about the objective is the definition in the page about metrics: late, refused and failed requests
// count, over all replicas.
func TestAttainmentHasOneDefinition(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindAllStringSubmatch(document(t, metricsPage), -1)
	if len(blocks) != 1 {
		t.Fatalf("%s has %d queries, want the definition of the attainment", metricsPage, len(blocks))
	}
	definition := oneForm(blocks[0][1])
	enough := oneForm("sum by (function) (increase(faas_infer_slo_misses_total[10m])) >= 10") // Of an alert: more than chance.
	shown := 0
	for where, query := range shownQueries(t) {
		rest := oneForm(query)
		shown += strings.Count(rest, definition)
		rest = strings.NewReplacer(definition, "", enough, "").Replace(rest)
		if strings.Contains(rest, "slo_requests") || strings.Contains(rest, "slo_misses") {
			t.Errorf("%s computes the attainment in its own way: %s", where, query)
		}
	}
	if shown < 3 {
		t.Errorf("the definition is shown %d times, want it in the headline, in a panel and in an alert", shown)
	}
}

var (
	legendLabel = regexp.MustCompile(`\{\{([a-z]+)\}\}`)
	grouping    = regexp.MustCompile(`by \(([a-z, ]+)\)`)
)

// Grafana draws the dashboard as it is meant: no panel is over another, and each legend names labels that its query
// keeps.
func TestDashboardIsWellFormed(t *testing.T) {
	d := readDashboard(t)
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q has the number %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("panel %q is at %+v", p.Title, g)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("panels %q and %q overlap", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if (len(p.Targets) == 0) != (p.Type == "row") {
			t.Errorf("panel %q of type %s has %d queries", p.Title, p.Type, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.RefID == "" || target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q: query %q of the source %q", p.Title, target.RefID, target.Datasource.UID)
			}
			refs[target.RefID] = true
			wantLabels(t, "panel "+p.Title, target.LegendFormat, target.Expr)
		}
	}
	if len(d.Annotations.List) == 0 {
		t.Error("the decisions are no annotations")
	}
	for _, a := range d.Annotations.List {
		if !a.Enable || a.Step == "" {
			t.Errorf("annotation %q is shown: %v, step %q", a.Name, a.Enable, a.Step)
		}
		wantLabels(t, "annotation "+a.Name, a.TitleFormat, a.Expr)
	}
}

// wantLabels checks that a query keeps the labels that a legend names.
func wantLabels(t *testing.T, where, legend, query string) {
	t.Helper()
	for _, l := range legendLabel.FindAllStringSubmatch(legend, -1) {
		if l[1] == "instance" {
			continue // Prometheus' own label of what it scrapes.
		}
		groups := grouping.FindAllStringSubmatch(query, -1)
		if !slices.ContainsFunc(groups, func(g []string) bool { return slices.Contains(strings.Split(g[1], ", "), l[1]) }) {
			t.Errorf("%s: the legend names %s, which %s does not keep", where, l[1], query)
		}
	}
}

// Each alert has a page that says what to do, and the tests of promtool, which TestAlerts runs, let it fire and
// not fire. There is no other page.
func TestAlertsHaveRunbooks(t *testing.T) {
	var tests struct {
		Tests []struct {
			Rules []struct {
				Name   string           `json:"alertname"`
				Alerts []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(document(t, "e2e/testdata/alerts.yaml")), &tests); err != nil {
		t.Fatal(err)
	}
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, one := range tests.Tests {
		for _, r := range one.Rules {
			fires[r.Name], rests[r.Name] = fires[r.Name] || len(r.Alerts) > 0, rests[r.Name] || len(r.Alerts) == 0
		}
	}
	pages, err := filepath.Glob("docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	index := document(t, "docs/runbooks/README.md")
	alerts := readAlerts(t)
	for _, r := range alerts {
		page := filepath.Join("docs/runbooks", r.Alert+".md")
		if !slices.Contains(pages, page) {
			t.Errorf("%s has no page %s", r.Alert, page)
			continue
		}
		for _, heading := range []string{"# " + r.Alert, "\n## What it means\n", "\n## Look\n", "\n## Mend\n", "```sh\n"} {
			if !strings.Contains(document(t, page), heading) {
				t.Errorf("%s lacks %q", page, heading)
			}
		}
		if want := "| [" + r.Alert + "](" + r.Alert + ".md) | " + r.Labels["severity"] + " |"; !strings.Contains(index, want) {
			t.Errorf("the list of runbooks lacks %q", want)
		}
		if r.Annotations["runbook_url"] != runbooks+r.Alert+".md" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has the annotations %v", r.Alert, r.Annotations)
		}
		if !fires[r.Alert] || !rests[r.Alert] {
			t.Errorf("%s fires in a test: %v; does not fire in one: %v", r.Alert, fires[r.Alert], rests[r.Alert])
		}
	}
	if len(pages) != len(alerts)+1 || len(alerts) < 5 {
		t.Errorf("%d alerts and the pages %v", len(alerts), pages)
	}
}
