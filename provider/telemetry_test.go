package provider

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
)

func TestTelemetry(t *testing.T) {
	at := now
	var broken error
	r := newRig(t, func(o *Options) {
		o.Now = func() time.Time { return at }
		o.Nodes = func(context.Context) ([]cluster.Node, error) {
			return []cluster.Node{{Name: "here", Total: cluster.Resources{CPU: 4000, Memory: 8 << 30}, Free: cluster.Resources{CPU: 3500, Memory: 6 << 30}}}, broken
		}
	})
	at = now.Add(90 * time.Second)
	r.deploy(t, nil)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Namespace = "team-a" })
	r.deploy(t, func(d *types.FunctionDeployment) {
		d.Service, d.Annotations, d.EnvVars = "alpine", nil, map[string]string{"PASSWORD": "hunter2"}
	})
	wantJSON(t, r.do("GET", "/system/telemetry", "").Body.String(), `{"provider":"faas-infer","version":{"release":"0.1.0","sha":"abc"},"uptimeSeconds":90,
		"functions":{"inference":2,"ordinary":1},
		"namespaces":[{"name":"openfaas-fn","inference":1,"ordinary":1},{"name":"team-a","inference":1,"ordinary":0}],
		"instances":{"wanted":6,"ready":3},
		"nodes":[{"name":"here","total":{"cpuMillicores":4000,"memoryBytes":8589934592},"free":{"cpuMillicores":3500,"memoryBytes":6442450944}}]}`)
	broken = errors.New("no answer")
	wantSentence(t, r.do("GET", "/system/telemetry", ""), 500, "no answer")
}
