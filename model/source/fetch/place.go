package fetch

import "path/filepath"

// Dir returns where the entry of a name is, if it is here.
func (c *Cache) Dir(name string) string { return filepath.Join(c.store.Dir, filepath.Base(name)) }
