package kubernetes

import "sync"

// memo remembers values by name. Its zero value is empty. It is safe for concurrent use.
type memo[V any] struct {
	mu     sync.Mutex
	values map[string]V
}

func (c *memo[V]) put(name string, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[string]V{}
	}
	c.values[name] = value
}

func (c *memo[V]) get(name string) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok := c.values[name]
	return value, ok
}
