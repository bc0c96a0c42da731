package process

import "os"

// Self returns the path of this program's file, for starting it again as a child.
func Self() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return os.Args[0]
}
