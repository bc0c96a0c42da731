package kubernetes

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

const (
	// usageHolds is how long a reading counts as current. A metrics server measures
	// every 15 s.
	usageHolds = 10 * time.Second
	// usagePause is the wait after a metrics server has failed.
	usagePause = time.Minute
	// usageTimeout is how long the metrics server may take to answer.
	usageTimeout = 5 * time.Second
)

// usageMeter reads what instances use. It is safe for concurrent use.
type usageMeter struct {
	client metrics.Interface
	log    zerolog.Logger
	now    func() time.Time

	mu   sync.Mutex
	next time.Time
	// failed: the last reading failed, and the failure is logged.
	failed bool
	usage  map[string]cluster.Resources
}

// newUsageMeter returns a meter; without a client it reads zeros.
func newUsageMeter(client metrics.Interface, log zerolog.Logger, now func() time.Time) *usageMeter {
	return &usageMeter{client: client, log: log, now: now}
}

// Of returns what a pod uses; zero if it is unknown.
func (m *usageMeter) Of(ctx context.Context, namespace, pod string) cluster.Resources {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.now(); m.client != nil && !now.Before(m.next) {
		m.next = now.Add(m.read(ctx))
	}
	return m.usage[namespace+"/"+pod]
}

// read reads all instances' usage and returns how long to wait before the next reading.
func (m *usageMeter) read(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	list, err := m.client.MetricsV1beta1().PodMetricses(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.InstanceLabel})
	if err != nil {
		if !m.failed {
			m.log.Warn().Err(err).Msg("instances' usage is unknown and shown as 0: there is no metrics server, or it does not answer")
		}
		m.failed, m.usage = true, nil
		return usagePause
	}
	m.failed, m.usage = false, make(map[string]cluster.Resources, len(list.Items))
	for i := range list.Items {
		item := &list.Items[i]
		var sum cluster.Resources
		for _, c := range item.Containers {
			sum = sum.Add(cluster.Resources{CPU: int(c.Usage.Cpu().MilliValue()), Memory: c.Usage.Memory().Value()})
		}
		m.usage[item.Namespace+"/"+item.Name] = sum
	}
	return usageHolds
}
