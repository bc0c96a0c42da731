package e2e

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	sdk "github.com/openfaas/go-sdk"
)

const defaultNamespace = "openfaas-fn"

// way is one of two ways to the functions: through the stock gateway, or directly to the
// provider.
type way struct {
	*stack
	// name is "gateway" or "direct".
	name string
	// base is where system routes and functions are.
	base string
	// faas is OpenFaaS's own client there.
	faas *sdk.Client
	// http is one that does not follow redirects.
	http *http.Client
}

func (w *way) throughGateway() bool { return w.name == "gateway" }

// ways returns both ways, for one test.
func (s *stack) ways(t *testing.T) []*way {
	t.Helper()
	var all []*way
	for name, base := range map[string]string{"gateway": gatewayURL, "direct": s.url} {
		at, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		plain := s.network.client(t)
		plain.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		auth := &sdk.BasicAuth{Username: "admin", Password: s.password}
		all = append(all, &way{stack: s, name: name, base: base, faas: sdk.NewClient(at, auth, plain), http: plain})
	}
	return all
}

// The provider meets the expectations of OpenFaaS's conformance suite, of faas-cli and of
// the gateway, both through the gateway and without it.
func TestConformance(t *testing.T) {
	p := gatewayPlace(t)
	s := p.upBehind(t)
	t.Run("all", func(t *testing.T) {
		for _, c := range []struct {
			name  string
			check func(*way, *testing.T)
			// beside are the others that a check may run beside, nil for none.
			beside turns
		}{
			{"deployments come back exactly", (*way).echoes, nil},
			{"lists", (*way).lists, checks},
			{"update and removal", (*way).updatesAndRemoves, checks},
			{"names that are none", (*way).refusesNames, nil},
			{"methods, paths, queries and headers", (*way).passesRequests, checks},
			{"environment", (*way).givesEnvironment, checks},
			{"bodies", (*way).carriesBodies, checks},
			{"redirects", (*way).passesRedirects, checks},
			{"unknown functions", (*way).knowsNoOther, nil},
			{"failing processes", (*way).tellsFailures, waits},
			{"small limits", (*way).answersWithinLimits, checks},
			{"memory limit", (*way).obeysMemoryLimit, checks},
			{"secrets", (*way).keepsSecrets, checks},
			{"bad secrets", (*way).refusesSecrets, checks},
			{"namespaces", (*way).keepsNamespaces, nil},
			{"info and health", (*way).tellsOfItself, nil},
			{"credentials", (*way).asksForCredentials, checks},
			{"logs", (*way).showsLogs, checks},
			{"logs followed", (*way).followsLogs, checks},
			{"scale minimum", (*way).keepsMinimum, checks},
			{"scaling disabled", (*way).scalesNotWhereDisabled, waits},
			{"scale up and down", (*way).scalesWithLoad, waits},
			{"scale route", (*way).scalesByRoute, checks},
			{"scale to zero when idle", (*way).goesToZero, waits},
			{"update under load", (*way).updatesUnderLoad, checks},
		} {
			t.Run(c.name, func(t *testing.T) {
				if c.beside != nil {
					t.Parallel()
				}
				for _, w := range s.ways(t) {
					t.Run(w.name, func(t *testing.T) {
						if c.beside != nil {
							c.beside.take(t)
						}
						c.check(w, t)
					})
				}
			})
		}
	})
	groups := p.cgroups()
	s.stop(t)
	gone(t, groups)
}

// own returns a name for this way only. Both ways can then run the same checks.
func (w *way) own(name string) string { return name + "-" + w.name }

// deployed deploys f until the test ends.
func (w *way) deployed(t *testing.T, f types.FunctionDeployment) {
	t.Helper()
	deploy(t, w.faas, f)
	t.Cleanup(func() {
		if err := w.faas.DeleteFunction(context.Background(), f.Service, f.Namespace); err != nil && !strings.Contains(err.Error(), "not found") {
			t.Errorf("remove %s: %v", f.Service, err)
		}
	})
}

// invoke sends a request to a function; rest follows the function's name in the path. The
// provider holds the request until an instance is ready.
func (w *way) invoke(t *testing.T, method, name, rest string, body []byte, headers ...string) answer {
	t.Helper()
	return do(t, w.http, method, w.base+"/function/"+name+rest, body, headers...)
}

// answers invokes a function and fails the test unless it answers 200.
func (w *way) answers(t *testing.T, name string, body []byte) string {
	t.Helper()
	a := w.invoke(t, http.MethodPost, name, "", body)
	if a.status != http.StatusOK {
		t.Fatalf("%s answered %d %s", name, a.status, a.body)
	}
	return a.body
}

// shown returns a function's status.
func (w *way) shown(t *testing.T, name, namespace string) types.FunctionStatus {
	t.Helper()
	s, err := w.faas.GetFunction(t.Context(), name, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// awaitReplicas waits until a number of instances are requested and ready.
func (w *way) awaitReplicas(t *testing.T, within time.Duration, name string, n uint64) {
	t.Helper()
	var last types.FunctionStatus
	end := time.Now().Add(within)
	for {
		if last = w.shown(t, name, defaultNamespace); last.Replicas == n && last.AvailableReplicas == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s has %d of %d replicas after %v, %d were awaited", name, last.AvailableReplicas, last.Replicas, within, n)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// system sends a request to a system route, with credentials.
func (w *way) system(t *testing.T, method, path string, body []byte) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.base+path, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("admin", w.password)
	response, err := w.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}
