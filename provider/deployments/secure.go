package deployments

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/provider"
)

// WatchdogAnnotation on a Deployment holds the arguments with which its image starts our watchdog, as
// JSON, if its pods speak TLS.
const WatchdogAnnotation = "faas-infer.dev/watchdog"

// watchdog returns the arguments with which a function's image starts our watchdog, nil if its instances
// do not speak TLS. A Deployment that runs the revision keeps what it has, so that no restart of the
// provider needs a registry or replaces pods. Without the option it gets plain HTTP again.
func (o *Options) watchdog(ctx context.Context, f *provider.Function, found deployed, runs bool) (args []string, err error) {
	switch {
	case o.Watchdog == nil:
		return nil, nil
	case !runs:
		return o.Watchdog(ctx, f.Deployment)
	case found.watchdog == "":
		return nil, nil
	}
	if err := json.Unmarshal([]byte(found.watchdog), &args); err != nil {
		return nil, fmt.Errorf("the Deployment's annotation %s is %q: %w; deploy the function again with faas-cli, or change an annotation in its spec", WatchdogAnnotation, found.watchdog, err)
	}
	return args, nil
}

// Certified returns the namespaces in which a controller has instances that speak TLS.
func Certified(c *Controller) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]bool{}
	for function, d := range c.deployed {
		if _, namespace, _ := strings.Cut(function, "."); d.watchdog != "" {
			found[namespace] = true
		}
	}
	for function, pods := range c.pods {
		for _, in := range pods {
			if _, namespace, _ := strings.Cut(function, "."); in.Network == podspec.TLS {
				found[namespace] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
