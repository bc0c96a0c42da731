package control

import "fmt"

// Hashes returns the hashes of the models of all of a controller's functions, as profiles have them
// in their keys. It returns an error if it does not know one of them.
func Hashes(c *Controller) (map[string]bool, error) {
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
		hash, err := c.options.Models.Hash(file)
		if err != nil {
			return nil, fmt.Errorf("identify the model of a function: %w", err)
		}
		all[hash] = true
	}
	return all, nil
}
