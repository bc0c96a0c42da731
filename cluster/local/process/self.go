package process

import "os"

// Self is this program's own file, for children that are this program again.
func Self() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return os.Args[0]
}
