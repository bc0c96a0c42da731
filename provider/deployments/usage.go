package deployments

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// sample reads in the background what functions use, unless the last reading still
// goes on.
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
		// Once until it can be read again: an API server names one outage in several ways.
		if err != nil && c.said == "" && !c.tasks.Ended() {
			c.options.Logger.Warn().Err(err).Msg("what functions use cannot be read from the cluster's metrics (metrics.k8s.io); 0 is shown until it can")
		}
		c.said = why
	})
}

// measure adds up what each function's pods use.
func (c *Controller) measure() (map[string]cluster.Resources, error) {
	ctx, cancel := context.WithTimeout(c.tasks.Context(), callPatience)
	defer cancel()
	used := map[string]cluster.Resources{}
	list, err := c.options.Usage.MetricsV1beta1().PodMetricses(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{LabelSelector: v1alpha1.ManagedByLabel + "=" + v1alpha1.ManagedBy + "," + v1alpha1.FunctionLabel + ",!" + v1alpha1.InstanceLabel})
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
