package control

// Hashes returns the hashes of the models of all of a controller's functions, as profiles have them
// in their keys.
func Hashes(c *Controller) map[string]bool {
	c.mu.Lock()
	var files []string
	for _, fn := range c.functions {
		for _, a := range fn.artefacts {
			files = append(files, a.file)
		}
		for _, m := range fn.unknown {
			files = append(files, m.File)
		}
	}
	c.mu.Unlock()
	all := map[string]bool{}
	for _, file := range files {
		if hash, err := c.options.Models.Hash(file); err == nil {
			all[hash] = true
		}
	}
	return all
}
