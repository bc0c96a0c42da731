package deployments

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
)

// sample reads the functions' usage in the background, unless the last reading is still in
// progress.
func (c *Controller) sample() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.options.Usage == nil || c.sampling || len(c.functions) == 0 {
		return
	}
	c.sampling = true
	c.tasks.Begin(func() {
		used, err := c.measure()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sampling, c.usage = false, used
		why := ""
		if err != nil {
			why = err.Error()
		}
		// Log an outage only once: the API server reports the same one in several ways.
		if err != nil && c.usageError == "" && !c.tasks.Ended() {
			c.options.Logger.Warn().Err(err).Msg("could not read the functions' usage from the cluster's metrics (metrics.k8s.io); showing 0 until this works")
		}
		c.usageError = why
	})
}

// measure sums up what each function's pods use.
func (c *Controller) measure() (map[string]cluster.Resources, error) {
	ctx, cancel := context.WithTimeout(c.tasks.Context(), callTimeout)
	defer cancel()
	used := map[string]cluster.Resources{}
	list, err := c.options.Usage.MetricsV1beta1().PodMetricses(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{LabelSelector: ordinarySelector})
	if err != nil {
		return used, err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		for _, container := range pod.Containers {
			used[fullName(pod)] = used[fullName(pod)].Add(cluster.Resources{
				CPU: int(container.Usage.Cpu().MilliValue()), Memory: container.Usage.Memory().Value()})
		}
	}
	return used, nil
}
